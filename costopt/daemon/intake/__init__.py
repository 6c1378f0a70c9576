"""Whether a submitted job is accepted."""
