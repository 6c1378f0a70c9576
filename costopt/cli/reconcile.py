"""`costopt reconcile`: lists orphaned nodes and volumes, and deletes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.options import (
    DEFAULT_STATE_DIR,
    account_option,
    duration_s,
    market_option,
    output_option,
    print_table,
    provider_option,
)
from costopt.formatting import minute_text, plain_text, pool_text, usd_text
from costopt.render.table import Column, Table

if TYPE_CHECKING:
    from costopt.controller.orphans import Orphan, ReconcileTarget
    from costopt.ledger.sql_ledger import SqlLedger

COLUMNS = (
    Column("kind", "Kind"),
    Column("name", "Name"),
    Column("place", "Place", pool_text),
    Column("job", "Job", rank=1),
    Column("since", "Since", minute_text, rank=3),
    Column("usd_per_hour", "$/h", usd_text, right=True, rank=2),
    Column("why", "Why", fold_at=60),
    Column("done", "Done", plain_text),
)


@click.command()
@account_option
@provider_option
@market_option
@click.option(
    "--state-dir",
    "state_dirs",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    envvar="COSTOPT_STATE_DIR",
    show_envvar=True,
    metavar="FOLDER",
    help=f"A directory whose ledger answers for nodes; name every one that runs under the "
    f"account's owner; default: {DEFAULT_STATE_DIR}.",
)
@click.option(
    "--grace",
    "grace_s",
    callback=duration_s,
    default="10m",
    metavar="DURATION",
    help="Ignore resources younger than this; their launch may not be recorded yet.",
)
@click.option(
    "--apply", is_flag=True, help="Delete the orphans found. Without this flag, only list them."
)
@output_option
@click.pass_context
def reconcile(
    context: click.Context,
    account: str | None,
    providers: tuple[str, ...],
    market: Path | None,
    state_dirs: tuple[Path, ...],
    grace_s: float,
    apply: bool,
    output: str,
) -> None:
    """List orphaned nodes and volumes.

    With --apply they are deleted. A node is an orphan if it carries the account's owner tag, is
    older than the grace time, and no ledger says that it lives, or no process controls its job; so
    are volumes that no node uses, and launch templates and placement groups of jobs that are over.
    Nothing without the tag is ever touched. Exits with 1 if something could not be deleted.
    """
    from costopt.controller.orphans import abandoned_jobs, find_orphans, read_records

    rows: list[dict[str, object]] = []
    failures = 0
    with (
        _ledgers(state_dirs or (DEFAULT_STATE_DIR,)) as ledgers,
        abandoned_jobs(ledgers) as abandoned,
        _clouds(account, providers, market, ledgers, abandoned) as clouds,
    ):
        records = read_records(ledgers.values())
        for cloud in clouds:
            found = find_orphans(
                cloud.provider, cloud.owner, records, cloud.now, grace_s, abandoned
            )
            done = [_done(cloud, orphan, [*ledgers.values()]) if apply else "" for orphan in found]
            failures += sum(1 for said in done if said.startswith("not"))
            rows += [_row(orphan, said) for orphan, said in zip(found, done, strict=True)]
            _print_unreachable(cloud)
    columns = COLUMNS if apply else COLUMNS[:-1]
    print_table(Table("costopt.reconcile/1", "Orphaned resources", columns, rows), output)
    if rows and not apply:
        click.echo("nothing was deleted: add --apply to do so", err=True)
    context.exit(1 if failures else 0)


@contextmanager
def _ledgers(state_dirs: Sequence[Path]) -> Iterator[dict[Path, SqlLedger]]:
    from costopt.controller.state_dir import open_state_ledger

    with ExitStack() as held:
        yield {each: held.enter_context(open_state_ledger(each)) for each in state_dirs}


@contextmanager
def _clouds(
    account: str | None,
    providers: tuple[str, ...],
    market: Path | None,
    ledgers: Mapping[Path, SqlLedger],
    held_jobs: frozenset[str],
) -> Iterator[list[ReconcileTarget]]:
    from costopt.controller.orphans import account_targets, simulated_targets
    from costopt.planning.request import load_account

    if market is None and account is None:
        raise click.UsageError(
            "nothing to search: give --account FILE with the providers to search, or --market FILE "
            "of a simulated cloud"
        )
    said = load_account(account)
    with ExitStack() as held:
        if market is None:
            yield held.enter_context(account_targets(said, providers))
            return
        from costopt.market.history_file import read_history

        history = read_history(market)
        yield [
            cloud
            for state_dir, ledger in ledgers.items()
            for cloud in held.enter_context(
                simulated_targets(state_dir, ledger, history, said.owner, held_jobs)
            )
        ]


def _done(cloud: ReconcileTarget, orphan: Orphan, ledgers: Sequence[SqlLedger]) -> str:
    from costopt.controller.orphans import record_release, release_orphan
    from costopt.domain.errors import ProviderError
    from costopt.domain.fleet import Node

    try:
        release_orphan(cloud.provider, orphan)
    except ProviderError as error:
        return f"not deleted: {error.message}"
    if isinstance(orphan.thing, Node):
        record_release(ledgers, orphan.thing, cloud.now, f"costopt reconcile: {orphan.why}")
    return "released"


def _row(orphan: Orphan, done: str) -> dict[str, object]:
    return {
        "kind": orphan.kind,
        "name": orphan.name,
        "place": orphan.place,
        "job": orphan.thing.job,
        "since": orphan.since,
        "usd_per_hour": orphan.thing.usd_per_hour,
        "why": orphan.why,
        "done": done,
    }


def _print_unreachable(cloud: ReconcileTarget) -> None:
    from costopt.cli.errors import print_error
    from costopt.provider.base import Capability

    if Capability.PARTIAL_FAILURES in cloud.provider.capabilities():
        for source, message in sorted(cloud.provider.errors_by_region().items()):
            print_error("note", f"{source} was not searched: {message}")
