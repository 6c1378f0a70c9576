"""The words of costopt as frozen dataclasses: standard library only, no I/O."""
