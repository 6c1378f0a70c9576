"""Jobs past their deadline whose nodes are paid for and save nothing, with what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from costopt.domain.events import SignalStale
from costopt.domain.job import Job
from costopt.engine.journal import Journal
from costopt.formatting import usd_micros_text

QUIET_S = 3600.0
"""After the deadline, or the last save after it."""
INTERVALS = 2.0
"""Between saves: a gang that saves rarely is given longer."""
GROWTH = 2.0
"""Times the dollars at the last report, before they are reported again."""
GANG = "the job's gang"


class OverdueJobs:
    """``reported`` is, by job, what was recorded last of the nodes that save nothing."""

    def __init__(self, journal: Journal, jobs: Mapping[str, Job]) -> None:
        self._journal = journal
        self._jobs = jobs
        self._usd_micros: dict[str, int] = {}
        self.reported: dict[str, str] = {}

    def observe(self, now: datetime) -> None:
        """Record each such job once, and again whenever its dollars have doubled."""
        for name, job in self._jobs.items():
            quiet_since_at = self._quiet_since(job, now)
            if quiet_since_at is None:
                self.forget(name)
            else:
                self._report(job, quiet_since_at, now)

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        self.reported.pop(job, None)
        self._usd_micros.pop(job, None)

    def _quiet_since(self, job: Job, now: datetime) -> datetime | None:
        """Return the deadline, or the last save after it, if that is long ago; None for a job that
        is well, or has no node."""
        record, gang = self._journal.records[job.name], self._journal.accounts[job.name].gang
        deadline_at = job.deadline_at
        if deadline_at is None or now <= deadline_at or job.array is not None:
            return None
        if record.over or not record.live or gang is None:
            return None
        since_at = max(deadline_at, record.checkpoint_at or deadline_at)
        quiet_s = max(QUIET_S, INTERVALS * gang.checkpoint_interval_s)
        return since_at if now - since_at >= timedelta(seconds=quiet_s) else None

    def _report(self, job: Job, since_at: datetime, now: datetime) -> None:
        assert job.deadline_at is not None
        account = self._journal.accounts[job.name]
        record = self._journal.records[job.name]
        usd_micros = account.usd_micros_between(job.deadline_at, now)
        if job.name in self.reported and usd_micros <= GROWTH * self._usd_micros[job.name]:
            return
        hourly_micros = sum(record.prices.get(node.pool, 0) for node in record.live.values())
        message = (
            f"past its deadline with nothing saved since {since_at:%Y-%m-%d %H:%MZ}: "
            f"{usd_micros_text(usd_micros)} since the deadline, "
            f"{usd_micros_text(hourly_micros)} more an hour"
        )
        self._usd_micros[job.name], self.reported[job.name] = usd_micros, message
        self._journal.write(SignalStale(at=now, job=job.name, source=GANG, message=message))
