"""When tasks are due that a daemon started later is not to repeat: two columns of a SQLite file.

Nothing but a name and a time is read back, so a file that a restore brings cannot run anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import text

from costopt.database.connection import Database
from costopt.database.migrations import Migrations
from costopt.domain.errors import LedgerError

DUE_TIMES = "schedule.sqlite"
MIGRATIONS = Migrations(
    "schedule",
    "due_times",
    (("CREATE TABLE due_times (name TEXT PRIMARY KEY, due_at TEXT NOT NULL)",),),
)
_GET = text("SELECT due_at FROM due_times WHERE name = :name")
_SET = text(
    "INSERT INTO due_times (name, due_at) VALUES (:name, :due_at)"
    " ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at"
)


class DueTimes:
    """Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> datetime | None:
        """When the task is due, None where that is unknown. Raises LedgerError."""
        with self._database.read_transaction() as connection:
            due_at = connection.scalar(_GET, {"name": name})
        try:
            return None if due_at is None else datetime.fromisoformat(due_at).astimezone(UTC)
        except (TypeError, ValueError):
            return None

    def set(self, name: str, due_at: datetime) -> None:
        """The task is due then. Raises LedgerError."""
        with self._database.write_transaction() as connection:
            connection.execute(_SET, {"name": name, "due_at": due_at.isoformat()})


@contextmanager
def open_due_times(path: Path) -> Iterator[DueTimes]:
    """Those in a file, made where it is missing. Raises LedgerError."""
    database = Database("schedule", path, lock=0)
    try:
        try:
            MIGRATIONS.apply(database)
        except LedgerError as error:
            hint = f"remove {path}: tasks then run once more than they need to"
            raise LedgerError(error.message, hint=hint) from error
        yield DueTimes(database)
    finally:
        database.close()
