"""`costopt stop`: every job saves, its nodes are released, and the providers say what remains."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option, duration_s, output_option, print_table
from costopt.cli.provider_account import nearest_account
from costopt.domain.errors import LedgerError
from costopt.formatting import pool_text
from costopt.planning.request import load_account
from costopt.render.table import Column, Table

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient
    from costopt.controller.stop_all import LeftThing
    from costopt.domain.account import Account

POLL_S = 1.0
COLUMNS = (
    Column("kind", "Kind"),
    Column("name", "Name"),
    Column("place", "Place", pool_text),
    Column("job", "Job", rank=1),
    Column("why", "Why", fold_at=60),
)


@click.command()
@click.option("--all", "every", is_flag=True, required=True, help="All jobs; there is no other.")
@account_option
@click.option("--within", "within_s", callback=duration_s, default="15m", metavar="DURATION",
              help="How long saving and releasing may take.")  # fmt: skip
@source_options
@output_option
@click.pass_context
def stop(
    context: click.Context,
    every: bool,  # noqa: ARG001 - required, so that all is never stopped unawares
    account: str | None,
    within_s: float,
    source: OpenSource,
    output: str,
) -> None:
    """Checkpoint all jobs and release their nodes.

    Of a daemon, every open job is paused; of a state directory, its runs end as with Ctrl-C, and
    nodes that no process controls save and are released. All can be resumed: with costopt resume,
    or with the same costopt run. In the end the providers of the account file are asked what
    still carries the owner's tag: exits with 1 if anything does, and lists it.
    """
    from costopt.controller.stop_all import left_with_providers

    shared = load_account(nearest_account(account))
    until_s = time.monotonic() + within_s
    try:
        left = _end_jobs(source, shared, until_s)
    except LedgerError as error:
        if error.code != "no_ledger" or not shared.providers:
            raise
        _say(f"note: {error.message}")
        left = []
    if shared.providers:
        known = {thing.name for thing in left}
        left += [t for t in left_with_providers(shared, until_s) if t.name not in known]
    else:
        _say("note: no provider was asked what remains, as no account file names one")
    print_table(Table("costopt.stop/1", "What remains", COLUMNS, left), output)
    if left:
        _say("not all has ended: see the list; `costopt reconcile --apply` releases orphans")
    context.exit(1 if left else 0)


def _end_jobs(source: OpenSource, shared: Account, until_s: float) -> list[LeftThing]:
    """End all jobs of a daemon or a state directory; return the nodes that still live by it."""
    from costopt.controller.stop_all import FolderStop, left_in_ledger
    from costopt.source.daemon import DaemonSource
    from costopt.source.ledger import LedgerSource

    with source() as runs:
        if isinstance(runs, DaemonSource):
            return _pause_all(runs.client, until_s)
        assert isinstance(runs, LedgerSource)
        if runs.state_dir is None:
            raise click.UsageError(f"{runs.name} is a daemon's: name its --server")
        FolderStop(runs.state_dir, shared, runs, until_s, _say).run()
        return left_in_ledger(runs.state_dir)


def _pause_all(client: DaemonClient, until_s: float) -> list[LeftThing]:
    """Pause every open job of a daemon and return the nodes that still live when time is up."""
    from costopt.client.client import ApiError
    from costopt.controller.stop_all import LeftThing

    names = [row["submission"]["name"] for row in client.get_all("jobs", rows="jobs", state="open")]
    for name in names:
        try:
            client.send("POST", "jobs", name, "pause")
        except ApiError as error:
            # It may have ended meanwhile.
            _say(f"note: {name}: {error.message}")
        else:
            _say(f"{name}: it saves and releases its nodes; costopt resume {name} resumes it")
    before = client.get("health")["last_tick_at"]
    while True:
        # The tick under way may still launch for a job that is paused.
        has_ticked = client.get("health")["last_tick_at"] != before
        left = [
            LeftThing("node", node["node_id"], node["pool"], name, "by the daemon it lives")
            for name in names
            for node in client.get("jobs", name)["nodes"]
        ]
        if (not left and has_ticked) or time.monotonic() >= until_s:
            return left
        time.sleep(POLL_S)


def _say(text: str) -> None:
    click.echo(text, err=True)
