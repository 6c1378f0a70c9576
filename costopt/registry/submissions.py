"""Jobs as they were handed in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, Row, func, select

from costopt.domain.control import DesiredState, Submission
from costopt.domain.errors import SpecError
from costopt.registry.tables import SUBMISSIONS

_FIELDS = [field.name for field in fields(Submission)]
_COLUMNS = [SUBMISSIONS.c[name] for name in _FIELDS]


def add_submission(connection: Connection, submission: Submission) -> None:
    """Raises SpecError where the name is taken."""
    if find_submission(connection, submission.name) is not None:
        raise SpecError(
            f"a job named {submission.name!r} was submitted already",
            hint="give the new one another name",
            code="duplicate",
            subject=submission.name,
        )
    last = connection.scalar(select(func.max(SUBMISSIONS.c.place))) or 0
    connection.execute(SUBMISSIONS.insert().values(place=last + 1, **asdict(submission)))


def find_submission(connection: Connection, name: str) -> Submission | None:
    """One job, or None."""
    row = connection.execute(select(*_COLUMNS).where(SUBMISSIONS.c.name == name)).first()
    return None if row is None else _submission(row)


def require_submission(connection: Connection, name: str) -> Submission:
    """One job. Raises SpecError for an unknown one."""
    submission = find_submission(connection, name)
    if submission is None:
        raise SpecError(
            f"there is no job {name!r}", hint="see `costopt list`", code="unknown_job", subject=name
        )
    return submission


def list_submissions(
    connection: Connection, desired_states: Collection[DesiredState], tenant: str | None
) -> tuple[Submission, ...]:
    """Return those of a tenant with one of these desired states, in the order of submission; empty
    and None are any."""
    query = select(*_COLUMNS).order_by(SUBMISSIONS.c.place)
    if desired_states:
        query = query.where(SUBMISSIONS.c.desired_state.in_(list(desired_states)))
    if tenant is not None:
        query = query.where(SUBMISSIONS.c.tenant == tenant)
    return tuple(_submission(row) for row in connection.execute(query))


def update_submission(connection: Connection, submission: Submission) -> None:
    """Keep what changed of a job that is known."""
    connection.execute(
        SUBMISSIONS.update()
        .where(SUBMISSIONS.c.name == submission.name)
        .values(desired_state=submission.desired_state, priority=submission.priority)
    )


def _submission(row: Row[Any]) -> Submission:
    return Submission(**dict(zip(_FIELDS, row, strict=True)))
