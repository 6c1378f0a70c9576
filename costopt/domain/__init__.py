"""The domain model of costopt as frozen dataclasses and ports: standard library only, no I/O."""
