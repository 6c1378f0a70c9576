"""Pages of lists: what is asked of them, and where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Generic, TypeVar

from costopt.daemon.shared_state import JobStatus
from costopt.domain.control import DesiredState, JobFilter
from costopt.domain.errors import SpecError
from costopt.ledger.summary import JobState

ENDED = (JobState.FINISHED, JobState.FAILED)

RECENT_JOBS = 50
"""How many jobs that are over a list shows unless it is asked for them."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The jobs of a list: of one tenant, with this in their name, submitted since an instant.

    RECENT are those that are open and the latest ``RECENT_JOBS`` that are over.
    """

    state: JobFilter = JobFilter.RECENT
    tenant: str | None = None
    name: str = ""
    since: datetime | None = None

    def select(self, statuses: Sequence[JobStatus]) -> tuple[JobStatus, ...]:
        """Return those of the jobs, in their order."""
        found = [status for status in statuses if self._matches(status)]
        if self.state is not JobFilter.RECENT:
            return tuple(found)
        over = [status.submission.name for status in found if is_over(status)]
        older = set(over[:-RECENT_JOBS])
        return tuple(status for status in found if status.submission.name not in older)

    def _matches(self, status: JobStatus) -> bool:
        submission = status.submission
        if self.tenant not in (None, submission.tenant) or self.name not in submission.name:
            return False
        if self.since is not None and submission.submitted_at < self.since:
            return False
        match self.state:
            case JobFilter.RECENT | JobFilter.ALL:
                return True
            case JobFilter.OPEN | JobFilter.ENDED:
                return is_over(status) == (self.state is JobFilter.ENDED)
            case _:
                return status.summary.state == self.state.value


def is_over(status: JobStatus) -> bool:
    """Return whether the job will never need nodes again."""
    cancelled = status.submission.desired_state is DesiredState.CANCELLED
    return status.summary.state in ENDED or cancelled


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """Rows of a list; ``next`` is the cursor of the page that follows, None after the last."""

    rows: tuple[Row, ...]
    next: str | None


def page_of(
    rows: Iterable[Row],
    key: Callable[[Row], str],
    cursor: str | None,
    limit: int,
    order: Sequence[Row] | None = None,
) -> ListPage[Row]:
    """Return at most ``limit`` rows, those after the one whose key is the cursor; more of them are
    not looked at.

    ``order`` is the whole list of which ``rows`` are some, where a row may be among them no longer
    when the next page is asked for. Raise SpecError if no row has the cursor's key.
    """
    left = iter(rows) if cursor is None else _after(rows, key, cursor, order)
    found = tuple(islice(left, limit + 1))
    shown = found[:limit]
    return ListPage(shown, key(shown[-1]) if len(found) > limit else None)


def _after(
    rows: Iterable[Row], key: Callable[[Row], str], cursor: str, order: Sequence[Row] | None
) -> Iterator[Row]:
    if order is not None:
        places = {key(row): place for place, row in enumerate(order)}
        if cursor in places:
            return (row for row in rows if places[key(row)] > places[cursor])
    else:
        left = iter(rows)
        if any(key(row) == cursor for row in left):
            return left
    raise SpecError(
        f"no row of the list has the cursor {cursor!r}",
        hint="begin again without a cursor",
        code="unknown_cursor",
    )
