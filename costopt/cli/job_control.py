"""costopt pause, resume, cancel and reprioritize"""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.server import connect, server_options

_job = click.argument("job")


@click.command()
@_job
@server_options
def pause(job: str, server: str, token_file: Path | None) -> None:
    """Save a job, give its nodes back, keep it for later."""
    connect(server, token_file).send("POST", "jobs", job, "pause")
    _say(f"{job} saves, then gives its nodes back; costopt resume {job} goes on with it")


@click.command()
@_job
@server_options
def resume(job: str, server: str, token_file: Path | None) -> None:
    """Go on with a job that was paused or stopped."""
    connect(server, token_file).send("POST", "jobs", job, "resume")
    _say(f"{job} goes on from the next tick")


@click.command()
@_job
@server_options
def cancel(job: str, server: str, token_file: Path | None) -> None:
    """Save a job, give its nodes back, never run it again."""
    connect(server, token_file).send("POST", "jobs", job, "cancel")
    _say(f"{job} saves, then gives its nodes back; its checkpoints are kept")


@click.command(context_settings={"ignore_unknown_options": True})
@_job
@click.argument("priority", type=click.IntRange(-1000, 1000))
@server_options
def reprioritize(job: str, priority: int, server: str, token_file: Path | None) -> None:
    """Serve a job before or after others.

    Jobs with a higher PRIORITY are served first and may take the room of those with a lower one,
    which save before they yield.
    """
    told = connect(server, token_file).send(
        "PUT", "jobs", job, "priority", body={"priority": priority}
    )  # fmt: skip
    _say(f"{job} has the priority {told['priority']}")


def _say(what: str) -> None:
    click.echo(what, err=True)
