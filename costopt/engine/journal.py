"""The ledger and the folded state of its jobs, updated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from costopt.domain.events import Event
from costopt.domain.ports import Ledger
from costopt.ledger.codec import check_finite
from costopt.ledger.fold_cache import load_fold
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_record import JobRecord
from costopt.ledger.summary import JobSummary


class Journal:
    """Writes events and updates each job's record and account with them."""

    def __init__(self, ledger: Ledger, jobs: Iterable[str]) -> None:
        self._ledger = ledger
        self.records: dict[str, JobRecord] = {}
        self.accounts: dict[str, JobAccount] = {}
        self._summaries: dict[str, JobSummary] = {}
        self._held: list[Event] | None = None
        for job in jobs:
            self.open(job)

    def open(self, job: str) -> None:
        """Load what the ledger holds of one more job. Raises LedgerError."""
        known = load_fold(self._ledger, job)
        self.records[job] = JobRecord(job) if known is None else known.record
        self.accounts[job] = JobAccount(job) if known is None else known.account

    def close(self, job: str) -> None:
        """Forget a job; the ledger retains its events."""
        self.records.pop(job, None)
        self.accounts.pop(job, None)
        self._summaries.pop(job, None)

    def summary(self, job: str, now: datetime) -> JobSummary:
        """Return the figures of a job's account at ``now``, cached until something changes."""
        known = self._summaries.get(job)
        if known is None or known.now != now:
            known = self._summaries[job] = self.accounts[job].summary(now)
        return known

    def write(self, *events: Event) -> None:
        """Append all events or none, then fold them. Raises LedgerError, and then folds nothing.

        Its code is UNRECORDABLE where an event has a figure that is not a number: also in a batch,
        such an event harms no other.
        """
        for event in events:
            check_finite(event)
        if self._held is not None:
            self._held += events
        elif events:
            self._ledger.append(*events)
        for event in events:
            self._apply(event)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Fold what is written inside at once, and append it as a whole at the end, also where an
        error or KeyboardInterrupt ends the block.

        So no call inside may depend on its intent being in the ledger. Raises LedgerError at the
        end; the folded state is ahead of the ledger then, and must be discarded.
        """
        held = self._held = []
        try:
            yield
        except (Exception, KeyboardInterrupt):
            self._append(held)
            raise
        self._append(held)

    def _append(self, held: list[Event]) -> None:
        self._held = None
        if held:
            self._ledger.append(*held)

    def _apply(self, event: Event) -> None:
        if event.job in self.records:
            self.records[event.job].apply(event)
            self.accounts[event.job].apply(event)
            self._summaries.pop(event.job, None)
