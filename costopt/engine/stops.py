"""Jobs that are to checkpoint and give their nodes back, though they are not done."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.events import RunStopped
from costopt.domain.view import STOP, Decision
from costopt.engine.journal import Journal
from costopt.ledger.summary import JobState


class StopManager:
    """Why each of them stops; by a guard's word it stops only for as long as that says so."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._reasons: dict[str, str] = {}
        self._by_guard: set[str] = set()

    def __contains__(self, job: str) -> bool:
        return job in self._reasons

    def reason(self, job: str) -> str:
        """Why the job stops, "" where it does not."""
        return self._reasons.get(job, "")

    def is_by_guard(self, job: str) -> bool:
        """Whether the job stops because a guard says so."""
        return job in self._by_guard

    def begin(self, job: str, reason: str, now: datetime, *, by_guard: bool = False) -> bool:
        """From now on the job stops. False where it does already, or is over.

        What a person stops goes on only by ``end``, whatever guards had said before.
        """
        if self._journal.records[job].over:
            return False
        if job in self._reasons:
            if not by_guard and job in self._by_guard:
                self._by_guard.discard(job)
                self._reasons[job] = reason
            return False
        self._reasons[job] = reason
        if by_guard:
            self._by_guard.add(job)
        self._note(job, now)
        return True

    def end(self, job: str) -> None:
        """The job goes on; one that does not stop does so in any case."""
        self._reasons.pop(job, None)
        self._by_guard.discard(job)

    def guard_allows(self, job: str) -> None:
        """No guard holds the job any more: it goes on, unless somebody else stopped it."""
        if job in self._by_guard:
            self.end(job)

    def is_stopped(self, job: str) -> bool:
        """Whether the job has stopped altogether: no node of it is left or may yet come."""
        record = self._journal.records[job]
        return job in self._reasons and not (record.live or record.intents)

    def confirm(self, now: datetime) -> None:
        """What a gang still did while it stopped must not be the last word on the job."""
        for job in self._reasons:
            if self.is_stopped(job) and not self._journal.records[job].over:
                self._note(job, now)

    def _note(self, job: str, now: datetime) -> None:
        if self._journal.accounts[job].state is not JobState.STOPPED:
            self._journal.write(RunStopped(at=now, job=job, reason=self._reasons[job]))


def stop_decision(job: str) -> Decision:
    """The decision for a job that stops."""
    return Decision(job, (), "stopping: checkpoint and give the nodes back", STOP)
