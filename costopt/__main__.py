"""``python -m costopt``: the command line."""

from costopt.cli.main import main

if __name__ == "__main__":
    main()
