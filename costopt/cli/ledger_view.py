"""The ledger of a state directory, read for the commands that only look."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event

if TYPE_CHECKING:
    from costopt.ledger.account import JobAccount
    from costopt.ledger.snapshot import FoldState
    from costopt.ledger.sql_ledger import SqlLedger
    from costopt.ledger.summary import JobSummary


def open_existing_ledger(state_dir: Path) -> SqlLedger:
    """The ledger. Raises LedgerError where nothing has run in this directory."""
    from costopt.ledger.sql_ledger import open_sqlite_ledger
    from costopt.session.live import LEDGER

    path = state_dir / LEDGER
    if not path.exists():
        raise LedgerError(
            f"nothing has run in {state_dir}: there is no ledger {path}",
            hint="name the directory of a run with --state-dir",
            code="no_ledger",
        )
    return open_sqlite_ledger(path, create=False)


def check_known(ledger: SqlLedger, state_dir: Path, job: str) -> None:
    """Raise LedgerError where the ledger holds nothing of the job."""
    known = ledger.jobs()
    if job not in known:
        raise LedgerError(
            f"no job {job!r} has run in {state_dir}",
            hint=f"jobs there: {', '.join(known) or 'none'}",
            code="unknown_job",
        )


def job_events(state_dir: Path, job: str) -> tuple[tuple[Event, ...], datetime]:
    """A job's events, and the present of its clock. Raises LedgerError for an unknown job."""
    with open_existing_ledger(state_dir) as ledger:
        check_known(ledger, state_dir, job)
        events = tuple(recorded.event for recorded in ledger.events(job))
    return events, _present(state_dir, job, max(event.at for event in events))


def job_account(state_dir: Path, job: str) -> tuple[JobAccount, datetime]:
    """A job's account, and the present of its clock. Raises LedgerError for an unknown job."""
    known, now = folded_in(state_dir, job)
    return known.account, now


def folded_in(
    state_dir: Path, job: str, known: FoldState | None = None
) -> tuple[FoldState, datetime]:
    """The same with what goes on from it: of ``known``, only what is newer is read."""
    from costopt.ledger.snapshot import require_fold

    with open_existing_ledger(state_dir) as ledger:
        if known is None:
            check_known(ledger, state_dir, job)
        known = require_fold(ledger, job, known)
    return known, _present(state_dir, job, known.last_at)


def job_summaries(state_dir: Path) -> list[JobSummary]:
    """Every job's figures, each at the present of its clock."""
    from costopt.ledger.snapshot import summaries

    clocks = {path.parent.name: path for path in state_dir.glob("jobs/*/clock.json")}
    with open_existing_ledger(state_dir) as ledger:
        return list(summaries(ledger, lambda job, last_at: _now(clocks.get(job), last_at)))


def _present(state_dir: Path, job: str, last_at: datetime) -> datetime:
    path = state_dir / "jobs" / job / "clock.json"
    return _now(path if path.exists() else None, last_at)


def _now(clock: Path | None, last_at: datetime) -> datetime:
    """The run's market time where it has its own clock, the wall's time else.

    Never before the last event.
    """
    from costopt.controller.simulated_site import load_market_clock

    now = datetime.now(UTC)
    if clock is not None:
        now = load_market_clock(clock, now, 1.0).now()
    return max(now, last_at)
