"""Pages of lists: what is asked of them, and where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from costopt.daemon.shared_state import JobStatus
from costopt.domain.control import DesiredState
from costopt.domain.errors import SpecError
from costopt.ledger.job_query import ENDED, JobFacts

Row = TypeVar("Row")


def job_facts(status: JobStatus) -> JobFacts:
    """Return what a query looks at."""
    submission = status.submission
    state, over = status.summary.state, is_over(status)
    return JobFacts(submission.name, submission.tenant, submission.submitted_at, state, over)


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
