"""costopt submit"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.options import job_argument, policy_option
from costopt.cli.server import connect, server_options

if TYPE_CHECKING:
    from costopt.client.client import Client


@click.command()
@job_argument
@policy_option
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    help="Jobs with a higher one are served first.",
)
@click.option(
    "--workdir",
    metavar="FOLDER",
    help="From where relative paths of the job count, on the daemon's machine; default: the job "
    "file's folder for a daemon on this machine, else the daemon's own folder for jobs.",
)
@server_options
def submit(
    job: str,
    policy: str,
    priority: int,
    workdir: str | None,
    server: str,
    token_file: Path | None,
) -> None:
    """Hand a job to a daemon.

    The job and policy files are checked here and there, and kept as they are now. Times of the job
    that are given as durations count from when the daemon takes it in. What the daemon then does
    by itself depends on its mode.
    """
    from costopt.client.address import UNIX
    from costopt.spec import load_job, load_policy
    from costopt.spec.shipped import shipped_policies

    client = connect(server, token_file)
    load_job(job, _now(client))
    chosen = policy if policy in shipped_policies() else _text(policy, load_policy)
    if workdir is None and server.startswith(UNIX):
        workdir = str(Path(job).resolve().parent)
    body = {
        "job": Path(job).read_text(encoding="utf-8-sig"),
        "policy": chosen,
        "workdir": workdir or "",
        "priority": priority,
    }
    taken = client.tell("POST", "jobs", body=body)
    mode = client.get("mode")["mode"]
    click.echo(taken["name"])
    click.echo(f"note: the daemon's mode is {mode}; see costopt show {taken['name']}", err=True)


def _now(client: Client) -> datetime:
    """The daemon's present, which need not be ours where it lives on a recorded market."""
    ticked_at = client.get("health")["last_tick_at"]
    return datetime.now(UTC) if ticked_at is None else datetime.fromisoformat(ticked_at)


def _text(path: str, check: object) -> str:
    assert callable(check)
    check(path)
    return Path(path).read_text(encoding="utf-8-sig")
