"""The ledger of a state directory, read for the commands that only look."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event

if TYPE_CHECKING:
    from costopt.ledger.account import JobAccount
    from costopt.ledger.sqlite import SqliteLedger


def open_existing(state_dir: Path) -> SqliteLedger:
    """The ledger. Raises LedgerError where nothing has run in this directory."""
    from costopt.ledger.sqlite import open_ledger
    from costopt.session.live import LEDGER

    path = state_dir / LEDGER
    if not path.exists():
        raise LedgerError(
            f"nothing has run in {state_dir}: there is no ledger {path}",
            hint="name the directory of a run with --state-dir",
        )
    return open_ledger(path, create=False)


def check_known(ledger: SqliteLedger, state_dir: Path, job: str) -> None:
    """Raise LedgerError where the ledger holds nothing of the job."""
    known = ledger.jobs()
    if job not in known:
        raise LedgerError(
            f"no job {job!r} has run in {state_dir}",
            hint=f"jobs there: {', '.join(known) or 'none'}",
        )


def events_of(state_dir: Path, job: str) -> tuple[tuple[Event, ...], datetime]:
    """A job's events, and the present of its clock. Raises LedgerError for an unknown job."""
    with open_existing(state_dir) as ledger:
        check_known(ledger, state_dir, job)
        events = tuple(recorded.event for recorded in ledger.events(job))
    return events, _present(state_dir, job, events)


def accounts_in(state_dir: Path, job: str | None) -> list[tuple[JobAccount, datetime]]:
    """The accounts of one job or of all, each with the present of its clock."""
    from costopt.ledger.account import JobAccount

    if job is None:
        with open_existing(state_dir) as ledger:
            names = ledger.jobs()
    else:
        names = (job,)
    accounts = []
    for name in names:
        events, now = events_of(state_dir, name)
        account = JobAccount(name)
        for event in events:
            account.apply(event)
        accounts.append((account, now))
    return accounts


def _present(state_dir: Path, job: str, events: tuple[Event, ...]) -> datetime:
    """The run's market time where it has its own clock, the wall's time else.

    Never before the last event.
    """
    from costopt.session.market_clock import market_clock

    path = state_dir / "jobs" / job / "clock.json"
    now = datetime.now(UTC)
    if path.exists():
        now = market_clock(path, now, 1.0).now()
    return max([now, *(event.at for event in events)])
