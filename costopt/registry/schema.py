"""The registry's tables for queries, the migrations that create them, and the audit log.

Times are text, ISO 8601 in UTC with microseconds, so that both databases order and store them in
the same way. Operator actions are numbered from 1 without gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Float,
    Integer,
    String,
    TypeDecorator,
    column,
    func,
    select,
    table,
)

from costopt.database.migrations import Migration, Migrations
from costopt.domain.control import ActionKind, AuditEntry, DesiredState, Mode, ProposalState


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, as text in UTC whose order is that of times."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the text of a time. Raises ValueError for a naive one."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the time of a text, in UTC."""
        return None if value is None else datetime.fromisoformat(value)


class EnumText(TypeDecorator[StrEnum]):
    """A member of an enumeration, by its value."""

    impl = String
    cache_ok = True

    def __init__(self, kind: Callable[[str], StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the member's value."""
        return None if value is None else value.value

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:  # noqa: ARG002
        """Return the member of a value."""
        return None if value is None else self.kind(value)


SUBMISSIONS = table(
    "submissions",
    column("name", String),
    column("place", Integer),
    column("tenant", String),
    column("priority", Integer),
    column("job_document", String),
    column("policy_document", String),
    column("workdir", String),
    column("submitted_at", UtcDateTime),
    column("submitted_by", String),
    column("desired_state", EnumText(DesiredState)),
    column("schedule", String),
)

SCHEDULES = table("schedules", column("name", String), column("handled_until", UtcDateTime))

PROPOSALS = table(
    "proposals",
    column("id", String),
    column("place", Integer),
    column("job", String),
    column("kind", EnumText(ActionKind)),
    column("pool", String),
    column("nodes", Integer),
    column("reason", String),
    column("proposed_at", UtcDateTime),
    column("node_id", String),
    column("usd_per_hour", Float),
    column("state", EnumText(ProposalState)),
    column("answered_by", String),
    column("answered_at", UtcDateTime),
    column("outcome", String),
)

CHANGES = table(
    "changes",
    column("number", Integer),
    column("at", UtcDateTime),
    column("who", String),
    column("what", String),
    column("subject", String),
    column("detail", String),
)

HALTS = table(
    "halts",
    column("id", Integer),
    column("reason", String),
    column("who", String),
    column("at", UtcDateTime),
)

MODES = table("modes", column("id", Integer), column("mode", EnumText(Mode)))

TOKENS = table(
    "tokens",
    column("name", String),
    column("scopes", String),
    column("lookup", String),
    column("digest", String),
    column("added_at", UtcDateTime),
    column("added_by", String),
    column("tenant", String),
)


INITIAL: Migration = (
    """
    CREATE TABLE submissions (
        name TEXT PRIMARY KEY,
        place INTEGER NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        priority INTEGER NOT NULL,
        job_document TEXT NOT NULL,
        policy_document TEXT NOT NULL,
        workdir TEXT NOT NULL,
        submitted_at TEXT NOT NULL,
        submitted_by TEXT NOT NULL,
        desired_state TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE proposals (
        id TEXT PRIMARY KEY,
        place INTEGER NOT NULL UNIQUE,
        job TEXT NOT NULL,
        kind TEXT NOT NULL,
        pool TEXT NOT NULL,
        nodes INTEGER NOT NULL,
        reason TEXT NOT NULL,
        proposed_at TEXT NOT NULL,
        node_id TEXT,
        usd_per_hour DOUBLE PRECISION,
        state TEXT NOT NULL,
        answered_by TEXT,
        answered_at TEXT,
        outcome TEXT NOT NULL
    )
    """,
    "CREATE INDEX proposals_by_state ON proposals (state, place)",
    """
    CREATE TABLE changes (
        number INTEGER PRIMARY KEY,
        at TEXT NOT NULL,
        who TEXT NOT NULL,
        what TEXT NOT NULL,
        subject TEXT NOT NULL,
        detail TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE halts (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        reason TEXT NOT NULL,
        who TEXT NOT NULL,
        at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE modes (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        mode TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY,
        scopes TEXT NOT NULL,
        lookup TEXT NOT NULL UNIQUE,
        digest TEXT NOT NULL,
        added_at TEXT NOT NULL,
        added_by TEXT NOT NULL,
        tenant TEXT
    )
    """,
)

RECURRING: Migration = (
    "ALTER TABLE submissions ADD COLUMN schedule TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE schedules (name TEXT PRIMARY KEY, handled_until TEXT NOT NULL)",
)

MIGRATIONS = Migrations("registry", "submissions", (INITIAL, RECURRING), first=4)


def append_audit_entry(
    connection: Connection, at: datetime, who: str, what: str, subject: str, detail: str = ""
) -> None:
    """Add an entry, in the transaction of its change."""
    last = connection.scalar(select(func.max(CHANGES.c.number))) or 0
    connection.execute(
        CHANGES.insert().values(
            number=last + 1, at=at, who=who, what=what, subject=subject, detail=detail
        )
    )


def audit_entries_after(connection: Connection, number: int) -> tuple[tuple[int, AuditEntry], ...]:
    """Return the entries with a higher number, ascending."""
    rows = connection.execute(
        select(CHANGES).where(CHANGES.c.number > number).order_by(CHANGES.c.number)
    )
    return tuple(
        (row.number, AuditEntry(row.at, row.who, row.what, row.subject, row.detail)) for row in rows
    )
