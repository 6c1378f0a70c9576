"""What people told the daemon, numbered from 1 without gaps."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select

from costopt.domain.control import AuditEntry
from costopt.registry.tables import CHANGES


def append_audit_entry(
    connection: Connection, at: datetime, who: str, what: str, subject: str, detail: str = ""
) -> None:
    """Add a change, in the transaction that makes it."""
    last = connection.scalar(select(func.max(CHANGES.c.number))) or 0
    connection.execute(
        CHANGES.insert().values(
            number=last + 1, at=at, who=who, what=what, subject=subject, detail=detail
        )
    )


def audit_entries_after(connection: Connection, number: int) -> tuple[tuple[int, AuditEntry], ...]:
    """Those with a higher number, ascending."""
    rows = connection.execute(
        select(CHANGES).where(CHANGES.c.number > number).order_by(CHANGES.c.number)
    )
    return tuple(
        (row.number, AuditEntry(row.at, row.who, row.what, row.subject, row.detail)) for row in rows
    )
