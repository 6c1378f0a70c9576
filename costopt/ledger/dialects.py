"""The differences of SQLite and PostgreSQL as ledgers: types, triggers, locks, lost commits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from costopt.database.failures import corrupt_error
from costopt.database.migrations import Migrations, SqlConnection, Transaction
from costopt.domain.errors import LedgerError
from costopt.ledger.base import FencedLedger, Leadership
from costopt.ledger.leadership import FileLeadership, PostgresLeadership
from costopt.ledger.locks import Sessions, controller_lock, postgres_controller_lock

APPLICATION_ID = 0x436F5374
"""Marks a SQLite file as a costopt ledger ("CoSt"), see sqlite.org/pragma.html."""
COMMIT_CHECK_TIMEOUT_S = 15.0
"""How long the server is asked whether it made a transaction whose commit it did not answer."""

_TABLES = (
    """
    CREATE TABLE events (
        seq {seq} PRIMARY KEY,
        job {name} NOT NULL,
        kind TEXT NOT NULL,
        at {time} NOT NULL,
        body TEXT NOT NULL
    )
    """,
    "CREATE INDEX events_by_job ON events (job, seq)",
    "CREATE INDEX events_by_kind ON events (kind, job, seq)",
    """
    CREATE TABLE leadership (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        holder TEXT NOT NULL,
        fence BIGINT NOT NULL,
        beat BIGINT NOT NULL,
        lease_s DOUBLE PRECISION NOT NULL
    )
    """,
    "INSERT INTO leadership (id, holder, fence, beat, lease_s) VALUES (1, '', 0, 0, 0)",
    """
    CREATE TABLE folds (
        job {name} NOT NULL,
        part TEXT NOT NULL,
        seq BIGINT NOT NULL,
        code TEXT NOT NULL,
        body {bytes} NOT NULL,
        PRIMARY KEY (job, part)
    )
    """,
)


def _migrations(types: dict[str, str], *others: str) -> Migrations:
    """Return the ledger's migrations in a database's types, with its own additions."""
    tables = tuple(statement.format_map(types) for statement in _TABLES)
    return Migrations("ledger", "events", ((*tables, *others),), first=3)


SQLITE_MIGRATIONS = _migrations(
    {"seq": "INTEGER", "name": "TEXT", "time": "TEXT", "bytes": "BLOB"},
    """
    CREATE TRIGGER events_never_change BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
    """,
    """
    CREATE TRIGGER events_never_vanish BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
    """,
    # INSERT OR REPLACE deletes without firing the trigger above
    """
    CREATE TRIGGER events_never_replaced BEFORE INSERT ON events
    WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
)

POSTGRES_MIGRATIONS = _migrations(
    {"seq": "BIGINT", "name": 'TEXT COLLATE "C"', "time": "TIMESTAMPTZ", "bytes": "BYTEA"},
    """
    CREATE FUNCTION costopt_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'raise_exception';
    END
    $$
    """,
    """
    CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION costopt_append_only()
    """,
    """
    CREATE TRIGGER events_never_vanish BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION costopt_append_only()
    """,
)


class Dialect(Protocol):
    """What a ledger needs of its database beyond the shared SQL."""

    migrations: Migrations
    checks_indexes: bool
    """Whether reads are compared with the other index, as nothing else checks the pages."""

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Be the job's only controller while the context lasts. Raises LedgerError."""
        ...

    def leadership(self, ledger: FencedLedger, holder: str, lease_s: float) -> Leadership:
        """Return the leadership of the ledger, not yet acquired."""
        ...


class SqliteDialect:
    """Locks are files beside the ledger; they die with their process and need no lease."""

    migrations = SQLITE_MIGRATIONS
    checks_indexes = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Hold the job's lock file."""
        return controller_lock(self._path, job)

    def leadership(self, ledger: FencedLedger, holder: str, lease_s: float) -> FileLeadership:  # noqa: ARG002
        """Return the leadership by a lock file."""
        return FileLeadership(ledger, self._path, holder)


class PostgresDialect:
    """Locks are advisory ones of a session; leadership is a lease."""

    migrations = POSTGRES_MIGRATIONS
    checks_indexes = False

    def __init__(self, database: Sessions) -> None:
        self._database = database

    def exclusive(self, job: str) -> AbstractContextManager[None]:
        """Hold the job's advisory lock for as long as the server and this process live."""
        return postgres_controller_lock(self._database, job)

    def leadership(self, ledger: FencedLedger, holder: str, lease_s: float) -> PostgresLeadership:
        """Return the leadership by a lease."""
        return PostgresLeadership(ledger, self._database, holder, lease_s)


def check_sqlite_application(connection: SqlConnection) -> None:
    """Raise LedgerError where a SQLite file belongs to another program."""
    with connection.reading() as transaction:
        ((application,),) = transaction.execute("PRAGMA application_id")
        ((tables,),) = transaction.execute("SELECT count(*) FROM sqlite_master")
    if application != APPLICATION_ID and (application or tables):
        raise LedgerError(
            f"{connection.what}: the file is a SQLite database of another program",
            hint="name another file for the ledger; if it was one: costopt daemon restore",
            code="foreign_database",
        )


def check_sqlite_structure(connection: SqlConnection) -> None:
    """Raise LedgerError where a SQLite file's pages or indexes are damaged. Reads all of it."""
    with connection.reading() as transaction:
        ((said,),) = transaction.execute("PRAGMA integrity_check(1)")
    if said != "ok":
        raise corrupt_error(connection.what, said)


class PostgresConnection:
    """Implements SqlConnection; looks up a commit that the server did not answer.

    So LedgerError always means that nothing was written, unless the message says that this is
    unknown.
    """

    def __init__(self, database: SqlConnection) -> None:
        self.what = database.what
        self.reading = database.reading
        self.close = database.close
        self._database = database

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Write all or nothing, durably, while other writers wait. Raises LedgerError."""
        number: str | None = None
        try:
            with self._database.writing() as transaction:
                yield transaction
                ((number,),) = transaction.execute("SELECT CAST(pg_current_xact_id() AS text)")
        except LedgerError as error:
            if number is None or not self._is_committed(number, error):
                raise

    def _is_committed(self, number: str, lost: LedgerError) -> bool:
        give_up_at = time.monotonic() + COMMIT_CHECK_TIMEOUT_S
        while time.monotonic() < give_up_at:
            status = self._status(number)
            if status in ("committed", "aborted"):
                return status == "committed"
            time.sleep(0.1)
        raise LedgerError(
            f"{lost.message}; whether the events were written is not known",
            hint="start again from the ledger's events, as after a crash",
            code="outcome_unknown",
        ) from lost

    def _status(self, number: str) -> str | None:
        query = "SELECT pg_xact_status(CAST(CAST(:number AS text) AS xid8))"
        try:
            with self.reading() as transaction:
                ((status,),) = transaction.execute(query, {"number": number})
        except LedgerError:
            return None
        return str(status)
