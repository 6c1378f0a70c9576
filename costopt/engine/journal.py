"""The ledger and what is folded from it, kept in step."""

from __future__ import annotations

from collections.abc import Iterable

from costopt.domain.events import Event
from costopt.domain.ports import Ledger
from costopt.engine.record import JobRecord
from costopt.ledger.account import JobAccount


class Journal:
    """Writes events and keeps each job's record and account up to date with them."""

    def __init__(self, ledger: Ledger, jobs: Iterable[str]) -> None:
        self._ledger = ledger
        self.records = {job: JobRecord(job) for job in jobs}
        self.accounts = {job: JobAccount(job) for job in self.records}
        for job in self.records:
            for recorded in ledger.events(job):
                self._apply(recorded.event)

    def write(self, *events: Event) -> None:
        """Append, all or none, then fold. Raises LedgerError, and folds nothing then."""
        if not events:
            return
        self._ledger.append(*events)
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        if event.job in self.records:
            self.records[event.job].apply(event)
            self.accounts[event.job].apply(event)
