"""The public Python API, which ``import costopt`` exports and the command line calls."""
