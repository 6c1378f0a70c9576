"""Which jobs a list shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from costopt.domain.control import JobFilter
from costopt.ledger.summary import JobState

ENDED = (JobState.FINISHED, JobState.FAILED)

RECENT_JOBS = 50
"""How many jobs that are over a list shows unless it is asked for them."""

Row = TypeVar("Row")
JobRow = Mapping[str, Any]
"""A job as the daemon's API answers it, but that its ``summary`` is a JobSummary; of a ledger's job
it holds only what the ledger does."""


class JobFacts(NamedTuple):
    """What a query looks at; None is unknown."""

    name: str
    tenant: str | None
    submitted_at: datetime | None
    state: JobState
    is_over: bool


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The jobs of a list: of one tenant, with this in their name, submitted since an instant.

    RECENT are those that are open and the latest ``RECENT_JOBS`` that are over.
    """

    state: JobFilter = JobFilter.RECENT
    tenant: str | None = None
    name: str = ""
    since: datetime | None = None

    def select(self, jobs: Sequence[Row], facts: Callable[[Row], JobFacts]) -> tuple[Row, ...]:
        """Return those of the jobs, in their order."""
        found = [(job, known) for job in jobs if self._matches(known := facts(job))]
        over = [known.name for _, known in found if known.is_over]
        older = set(over[:-RECENT_JOBS]) if self.state is JobFilter.RECENT else set()
        return tuple(job for job, known in found if known.name not in older)

    def _matches(self, job: JobFacts) -> bool:
        if self.tenant not in (None, job.tenant) or self.name not in job.name:
            return False
        if self.since is not None and (job.submitted_at is None or job.submitted_at < self.since):
            return False
        match self.state:
            case JobFilter.RECENT | JobFilter.ALL:
                return True
            case JobFilter.OPEN | JobFilter.ENDED:
                return job.is_over == (self.state is JobFilter.ENDED)
            case _:
                return job.state == self.state.value
