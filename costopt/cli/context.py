"""The options of the whole command line, and where runs keep their ledger and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(slots=True)
class CliContext:
    """The values of the options that precede the command's name."""

    debug: bool = False


DEFAULT_STATE_DIR = Path(".costopt")

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    envvar="COSTOPT_STATE_DIR",
    show_envvar=True,
    metavar="FOLDER",
    help="Where runs keep their ledger and files.",
)
