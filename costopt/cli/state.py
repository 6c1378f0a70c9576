"""Where runs keep their ledger and files."""

from __future__ import annotations

from pathlib import Path

import click

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
