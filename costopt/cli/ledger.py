"""`costopt status`, `events` and `report`: read the ledger of a state directory, without changing
it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.context import state_dir_option
from costopt.cli.options import complete_file
from costopt.cli.output import output_option
from costopt.domain.errors import LedgerError
from costopt.domain.events import Event

if TYPE_CHECKING:
    from costopt.domain.fleet import ProviderCharge
    from costopt.ledger.fold_cache import FoldState
    from costopt.ledger.job_account import JobAccount
    from costopt.ledger.sql_ledger import SqlLedger
    from costopt.ledger.summary import JobSummary
    from costopt.render.run_tables import RunView


@click.command()
@click.argument("job", required=False)
@state_dir_option
@output_option
def status(job: str | None, state_dir: Path, output: str) -> None:
    """Show progress and costs of jobs.

    Without JOB, list every job of the state directory. The figures are computed from the ledger, so
    they are available while a job runs and after it.
    """

    from costopt.cli.output import print_table
    from costopt.render.run_tables import account_table, jobs_table, summary_table
    from costopt.render.table import OutputFormat

    if job is not None:
        print_table(account_table(*job_account(state_dir, job), output), output)
        return
    summaries = job_summaries(state_dir)
    raw = output in (OutputFormat.JSON, OutputFormat.CSV)
    print_table(summary_table(summaries) if raw else jobs_table(summaries), output)


@click.command()
@click.argument("job", required=False)
@state_dir_option
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this number.")
@output_option
def events(job: str | None, state_dir: Path, after: int, output: str) -> None:
    """List the events in the ledger.

    Every event has a number; the json form holds every field of each event.
    """

    from costopt.cli.output import print_table
    from costopt.formatting import pools_text
    from costopt.ledger.codec import encode
    from costopt.render.events import describe_event
    from costopt.render.table import Column, Row, Table

    rows: list[Row] = []
    with open_existing_ledger(state_dir) as ledger:
        if job is not None:
            check_known(ledger, state_dir, job)
        for recorded in ledger.events(job, after=after):
            description = describe_event(recorded.event)
            rows.append(
                {
                    "seq": recorded.seq,
                    "at": description.at,
                    "job": recorded.event.job,
                    "event": description.what,
                    "detail": description.detail,
                    "fields": json.loads(encode(recorded.event)),
                }
            )
    columns = (
        Column("seq", "#", right=True),
        Column("at", "Time (UTC)"),
        Column("job", "Job", rank=1),
        Column("event", "Event"),
        Column("detail", "Detail", pools_text, fold_at=60),
        Column("fields", "Fields", detail=True),
    )
    print_table(Table("costopt.events/1", "Events", columns, rows), output)


@click.command()
@click.argument("job")
@state_dir_option
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it; JOB.html if not given.",
)
@click.option(
    "--account",
    shell_complete=complete_file,
    metavar="FILE",
    help="Compare the ledger with what the account's providers billed.",
)
def report(job: str, state_dir: Path, to: Path | None, account: str | None) -> None:
    """Write a job's report as one HTML file.

    It holds the nodes over time, dollars and energy against on-demand, progress against the
    deadline and every event, and needs nothing but a browser. Prints the file's path.
    """

    from costopt.render.html import require_report_extra
    from costopt.render.run_report import write_run_report
    from costopt.render.run_tables import RunView, ledger_drift

    require_report_extra()
    recorded, now = job_events(state_dir, job)
    run = RunView.of(recorded, now)
    charges = [] if account is None else _charges(account, run)
    for charge in charges:
        click.echo(ledger_drift(charge, run), err=True)
    path = write_run_report(
        recorded, to or Path(f"{job}.html"), now=now, title=job, charges=charges
    )
    click.echo(path)


def _charges(account_file: str, run: RunView) -> list[ProviderCharge]:
    """Return the charges of each provider that reports them; print a note for one that cannot be
    reached."""
    from costopt.controller.account_site import connect_account
    from costopt.domain.errors import ProviderError
    from costopt.engine.loop import WallClock
    from costopt.planning.request import load_account
    from costopt.provider.base import Capability

    account, charges = load_account(account_file), []
    for provider in connect_account(account, (), WallClock()):
        try:
            if Capability.CHARGES not in provider.capabilities():
                continue
            job = run.summary.job
            charge = provider.charge(account.owner, job, run.begun_at, run.ended_at)
        except ProviderError as error:
            click.echo(f"not compared with the bill: {error}", err=True)
            continue
        finally:
            provider.close()
        if charge is None:
            names = ", ".join(sorted(provider.names))
            click.echo(f"the accounts of {names} hold nothing of job {job!r} yet", err=True)
        else:
            charges.append(charge)
    return charges


def open_existing_ledger(state_dir: Path) -> SqlLedger:
    """Return the ledger. Raise LedgerError if nothing has run in this directory."""
    from costopt.controller.live_run import LEDGER
    from costopt.ledger.sql_ledger import open_sqlite_ledger

    path = state_dir / LEDGER
    if not path.exists():
        raise LedgerError(
            f"nothing has run in {state_dir}: there is no ledger {path}",
            hint="name the directory of a run with --state-dir",
            code="no_ledger",
        )
    return open_sqlite_ledger(path, create=False)


def check_known(ledger: SqlLedger, state_dir: Path, job: str) -> None:
    """Raise LedgerError if the ledger holds nothing of the job."""
    known = ledger.jobs()
    if job not in known:
        raise LedgerError(
            f"no job {job!r} has run in {state_dir}",
            hint=f"jobs there: {', '.join(known) or 'none'}",
            code="unknown_job",
        )


def job_events(state_dir: Path, job: str) -> tuple[tuple[Event, ...], datetime]:
    """Return a job's events and its clock's time. Raise LedgerError for an unknown job."""
    with open_existing_ledger(state_dir) as ledger:
        check_known(ledger, state_dir, job)
        events = tuple(recorded.event for recorded in ledger.events(job))
    return events, job_now(state_dir, job, max(event.at for event in events))


def job_account(state_dir: Path, job: str) -> tuple[JobAccount, datetime]:
    """Return a job's account and its clock's time. Raise LedgerError for an unknown job."""
    known, now = folded_in(state_dir, job)
    return known.account, now


def folded_in(
    state_dir: Path, job: str, known: FoldState | None = None
) -> tuple[FoldState, datetime]:
    """Return the job's fold and its clock's time; events in ``known`` are not read again."""
    from costopt.ledger.fold_cache import require_fold

    with open_existing_ledger(state_dir) as ledger:
        if known is None:
            check_known(ledger, state_dir, job)
        known = require_fold(ledger, job, known)
    return known, job_now(state_dir, job, known.last_at)


def job_summaries(state_dir: Path) -> list[JobSummary]:
    """Return every job's figures, each at its clock's time."""
    from costopt.ledger.fold_cache import summaries

    clocks = {path.parent.name: path for path in state_dir.glob("jobs/*/clock.json")}
    with open_existing_ledger(state_dir) as ledger:
        return list(summaries(ledger, lambda job, last_at: _now(clocks.get(job), last_at)))


def job_now(state_dir: Path | None, job: str, last_at: datetime) -> datetime:
    """Return the job's clock's time, not before ``last_at``: the wall clock's without a folder."""
    path = None if state_dir is None else state_dir / "jobs" / job / "clock.json"
    return _now(path if path is not None and path.exists() else None, last_at)


def _now(clock: Path | None, last_at: datetime) -> datetime:
    """Return the run's market time if it has its own clock, otherwise the wall clock's.

    Never before the last event.
    """
    from costopt.controller.simulated_site import load_market_clock

    now = datetime.now(UTC)
    if clock is not None:
        now = load_market_clock(clock, now, 1.0).now()
    return max(now, last_at)
