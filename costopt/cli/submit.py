"""costopt submit"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.options import job_argument, policy_option
from costopt.cli.server import connect, server_options
from costopt.formatting import iso_minute_text

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient


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
@click.option(
    "--anyway", is_flag=True, help="Hand it in also where no plan finishes it by its deadline."
)
@server_options
def submit(
    job: str,
    policy: str,
    priority: int,
    workdir: str | None,
    anyway: bool,
    server: str,
    token_file: Path | None,
) -> None:
    """Hand a job to a daemon.

    The job and policy files are checked here and there, and kept as they are now. Times of the job
    that are given as durations count from when the daemon takes it in. The daemon plans the job
    alone on the market as it is now: where no plan finishes it by its deadline, this ends with 3
    and the binding constraint, as `costopt plan` does, and the job is not handed in. What the
    daemon does by itself with a job depends on its mode.
    """
    from costopt.client.address import UNIX
    from costopt.spec import load_job, load_policy
    from costopt.spec.shipped import bundled_policies

    client = connect(server, token_file)
    load_job(job, _now(client))
    chosen = policy if policy in bundled_policies() else _text(policy, load_policy)
    if workdir is None and server.startswith(UNIX):
        workdir = str(Path(job).resolve().parent)
    body = {
        "job": Path(job).read_text(encoding="utf-8-sig"),
        "policy": chosen,
        "workdir": workdir or "",
        "priority": priority,
        "anyway": anyway,
    }
    submit_job(client, body)


def submit_job(client: DaemonClient, body: Mapping[str, Any]) -> None:
    """Hand the job in, and tell what is to be told. Raises RefusedError, LostError."""
    taken = client.send("POST", "jobs", body=body)
    mode, halt = client.get("mode")["mode"], client.get("halt")["halt"]
    click.echo(taken["name"])
    click.echo(f"note: {_said(taken['verdict'])}", err=True)
    click.echo(f"note: the daemon's mode is {mode}; see costopt show {taken['name']}", err=True)
    if halt is not None:
        click.echo(f"note: {halt['who']} stopped all launches: {halt['reason']}", err=True)


def _now(client: DaemonClient) -> datetime:
    """The daemon's present, which need not be ours where it lives on a recorded market."""
    ticked_at = client.get("health")["last_tick_at"]
    return datetime.now(UTC) if ticked_at is None else datetime.fromisoformat(ticked_at)


def _said(verdict: Mapping[str, Any]) -> str:
    """Whether the job can end in time, in words."""
    if verdict["in_time"] is None:
        return f"whether it ends in time was not planned: {verdict['why']}"
    if not verdict["in_time"] or verdict["finish_at"] is None:
        return verdict["why"] or "nothing is left to do"
    finish, usd = iso_minute_text(verdict["finish_at"]), verdict["usd"]
    return f"a plan for it alone finishes by {finish} and costs ${usd:,.2f}"


def _text(path: str, check: object) -> str:
    assert callable(check)
    check(path)
    return Path(path).read_text(encoding="utf-8-sig")
