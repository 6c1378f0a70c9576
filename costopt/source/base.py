"""What every source of runs answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from costopt.domain.ports import RecordedEvent
from costopt.ledger.job_query import JobQuery, JobRow
from costopt.protocol.node_logs import LogChunk

if TYPE_CHECKING:
    from costopt.api.ledgers import JobRun
    from costopt.domain.account import Account


class Source(Protocol):
    """A ledger or a daemon, opened for reading. Methods raise CostoptError."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None, /,
    ) -> None: ...  # fmt: skip

    @property
    def name(self) -> str:
        """Return which source it is, in words."""
        ...

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs, in the order in which they were first known."""
        ...

    def rows(self, query: JobQuery) -> Sequence[JobRow]:
        """Return jobs as the API answers them, in the order of ``jobs``. ``summary`` is a
        JobSummary; the rest of what only a daemon knows is left out of a ledger's."""
        ...

    def row(self, name: str) -> JobRow:
        """Return a job as ``rows``, with its ``decision`` and living ``nodes``; raise for an
        unknown one."""
        ...

    def job(self, name: str) -> JobRun:
        """Return what is known of a job; raise for an unknown one."""
        ...

    def events(self, *, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield the events of all jobs in order, with numbers above ``after``."""
        ...

    def logs(self, job: str, account: Account | None) -> LogSource:
        """Return the logs of a job's nodes. ``account`` names the store of a run on clouds."""
        ...


def recorded_runs(source: Source) -> Iterator[JobRun]:
    """Yield the jobs of which there are events: a daemon also knows some that never began."""
    return (run for run in map(source.job, source.jobs()) if run.has_events())


@dataclass(frozen=True, slots=True)
class JobLogState:
    """A job's living ``nodes``; ``over`` is how it ended, "" while it runs."""

    nodes: tuple[str, ...]
    over: str


class LogSource(Protocol):
    """Logs of one job's nodes. Methods raise CostoptError."""

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return what follows byte ``after`` of the node's log; without a node, of the newest
        gang's first."""
        ...

    def read_task(self, task: int) -> str:
        """Return what all attempts of an array's task printed."""
        ...

    def state(self) -> JobLogState:
        """Return the job's current state."""
        ...
