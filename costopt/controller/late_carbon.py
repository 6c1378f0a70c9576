"""Carbon intensities that become known after a job's end, or while no controller had it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from costopt.domain.events import NodeEnded
from costopt.domain.ports import CarbonRecord
from costopt.engine.emissions import LATE_FOR, late_intensities
from costopt.ledger.base import DurableLedger
from costopt.ledger.fold_cache import FoldState, load_fold

JOBS_PER_CALL = 20


def recent_jobs(ledger: DurableLedger, now: datetime) -> Iterator[str]:
    """Yield the jobs of which a node ended in the last two weeks, newest first."""
    for _, ended in ledger.last_of_each(NodeEnded):
        if ended.at < now - LATE_FOR:
            return
        yield ended.job


def book_late(
    ledger: DurableLedger, job: str, carbon: CarbonRecord, now: datetime
) -> tuple[int, FoldState | None]:
    """Record hours of a job that no engine controls; return how many, and its fold after it.

    What the ledger holds already is not recorded again. Raises LedgerError.
    """
    known = load_fold(ledger, job)
    late = () if known is None else tuple(late_intensities(known.account, carbon, now))
    if not late:
        return 0, known
    ledger.append(*late)
    return len(late), load_fold(ledger, job, known)


class LateCarbon:
    """Books late hours of jobs that no engine controls, a few jobs per call, whenever the source
    has changed."""

    def __init__(self, ledger: DurableLedger, carbon: CarbonRecord) -> None:
        self._ledger = ledger
        self._carbon = carbon
        self._revision: int | None = None
        self._waiting: list[str] = []

    def book(self, controlled: Collection[str], now: datetime) -> Iterator[FoldState]:
        """Yield the folds of jobs for which hours were recorded. Raises LedgerError."""
        if self._revision != self._carbon.revision:
            self._revision = self._carbon.revision
            self._waiting = list(recent_jobs(self._ledger, now))
        now_due, self._waiting = self._waiting[:JOBS_PER_CALL], self._waiting[JOBS_PER_CALL:]
        for job in now_due:
            if job not in controlled:
                count, fold = book_late(self._ledger, job, self._carbon, now)
                if count and fold is not None:
                    yield fold
