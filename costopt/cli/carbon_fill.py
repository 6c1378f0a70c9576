"""`costopt carbon fill`: records intensities that became known after runs had ended."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from costopt.cli.errors import print_error
from costopt.cli.options import account_option, state_dir_option


@click.command()
@state_dir_option
@account_option
def fill(state_dir: Path, account: str | None) -> None:
    """Record hours of ended runs whose intensity has become known since.

    The account's service is asked for the hours of the last two weeks that count by the annual mean
    or have been revised; they are recorded in the ledger once. A run in progress records its hours
    itself, and the daemon those of all its jobs.
    """
    from costopt.controller.late_carbon import book_late, recent_jobs
    from costopt.controller.live_carbon import connect_live_carbon
    from costopt.controller.state_dir import open_state_ledger, run_lock
    from costopt.domain.errors import LedgerError
    from costopt.formatting import pluralize
    from costopt.ledger.fold_cache import load_fold
    from costopt.planning.request import load_account

    live, now = connect_live_carbon(load_account(account)), datetime.now(UTC)
    with open_state_ledger(state_dir) as ledger, run_lock(state_dir):
        jobs = tuple(recent_jobs(ledger, now))
        folds = (load_fold(ledger, job) for job in jobs)
        nodes = (each.account.fleet.nodes.values() for each in folds if each is not None)
        live.prepare({node.region for each in nodes for node in each}, now)
        for note in live.notes(now):
            print_error("note", note)
        for job in jobs:
            try:
                with ledger.exclusive(job):
                    count, _ = book_late(ledger, job, live, now)
            except LedgerError as error:
                print_error("note", f"{job}: {error.message}")
            else:
                click.echo(f"{job}: {pluralize(count, 'hour')} recorded")
