"""costopt restore"""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.state import state_dir_option


@click.command()
@state_dir_option
def restore(state_dir: Path) -> None:
    """Restore a daemon's corrupt files.

    The newest sound backup of each file that is corrupt or lost takes its place; events of the
    ledger that are newer and can still be read are added to it. The corrupt file stays beside it.
    A file that is sound is left alone. End the daemon first.
    """
    from datetime import UTC, datetime

    from costopt.daemon.backups import Backups

    restored = Backups(state_dir, keep=1).restore(datetime.now(UTC))
    if not restored:
        click.echo(f"nothing to restore: what lies in {state_dir} is sound", err=True)
    for file in restored:
        click.echo(f"{file.file} is as it was at {file.copied_at:%Y-%m-%d %H:%M:%S} UTC")
        if file.events:
            click.echo(f"  and {file.events} later events were saved")
        if file.damaged is not None:
            click.echo(f"  the corrupt file is {file.damaged}", err=True)
