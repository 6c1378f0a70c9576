"""costopt report"""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.state import state_dir_option


@click.command()
@click.argument("job")
@state_dir_option
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it; JOB.html if not given.",
)
def report(job: str, state_dir: Path, to: Path | None) -> None:
    """Write a job's report as one HTML file.

    It holds the nodes over time, dollars and energy against on-demand, progress against the
    deadline and every event, and needs nothing but a browser. Prints the file's path.
    """
    from costopt.cli.ledger_view import events_of
    from costopt.report.html import write_run_report

    recorded, now = events_of(state_dir, job)
    path = write_run_report(recorded, to or Path(f"{job}.html"), now=now, title=job)
    click.echo(path)
