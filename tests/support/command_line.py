"""Commands of ``costopt`` in this process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from costopt.cli.main import cli


def invoke(*arguments: str | Path) -> Result:
    """Run a command as a user types it."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
