"""Jobs that must checkpoint and release their nodes before they are done."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.events import RunStopped
from costopt.domain.view import STOP, Decision
from costopt.engine.journal import Journal
from costopt.ledger.summary import JobState


class StopManager:
    """Holds why each job stops; one that a guard stops does so only while the guard says so."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._reasons: dict[str, str] = {}
        self._by_guard: set[str] = set()

    def __contains__(self, job: str) -> bool:
        return job in self._reasons

    def reason(self, job: str) -> str:
        """Return why the job stops, "" where it does not."""
        return self._reasons.get(job, "")

    def is_by_guard(self, job: str) -> bool:
        """Return whether the job stops because of a guard."""
        return job in self._by_guard

    def begin(self, job: str, reason: str, now: datetime, *, by_guard: bool = False) -> bool:
        """Stop the job from now on. Return False where it is stopping already, or over.

        A job that an operator stops resumes only by ``end``, whatever guards said before.
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
        """Let the job resume; a job that is not stopping is unaffected."""
        self._reasons.pop(job, None)
        self._by_guard.discard(job)

    def guard_allows(self, job: str) -> None:
        """Let the job resume as no guard stops it any longer, unless an operator stopped it."""
        if job in self._by_guard:
            self.end(job)

    def is_stopped(self, job: str) -> bool:
        """Return whether the job has stopped: no node of it remains or may still come."""
        record = self._journal.records[job]
        return job in self._reasons and not (record.live or record.intents)

    def confirm(self, now: datetime) -> None:
        """Repeat the stop, so that the gang's last actions are not the job's final state."""
        for job in self._reasons:
            if self.is_stopped(job) and not self._journal.records[job].over:
                self._note(job, now)

    def _note(self, job: str, now: datetime) -> None:
        if self._journal.accounts[job].state is not JobState.STOPPED:
            self._journal.write(RunStopped(at=now, job=job, reason=self._reasons[job]))


def stop_decision(job: str) -> Decision:
    """Return the decision for a job that stops."""
    return Decision(job, (), "stopping: checkpoint and release the nodes", STOP)
