"""The ledger's tables, as numbered steps that only go forward.

``PRAGMA user_version`` holds the number of the last step taken. A step, once released, never
changes: later needs are later steps.
"""

from __future__ import annotations

import sqlite3

from costopt.domain.errors import LedgerError
from costopt.ledger.kinds import INDEX

APPLICATION_ID = 0x436F5374
"""Marks a SQLite file as a costopt ledger ("CoSt"), see sqlite.org/pragma.html."""

SQLITE_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            job TEXT NOT NULL,
            kind TEXT NOT NULL,
            at TEXT NOT NULL,
            body TEXT NOT NULL
        )
        """,
        "CREATE INDEX events_by_job ON events (job, seq)",
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
    ),
    (
        """
        CREATE TABLE leadership (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            holder TEXT NOT NULL,
            fence INTEGER NOT NULL
        )
        """,
        "INSERT INTO leadership (id, holder, fence) VALUES (1, '', 0)",
        """
        CREATE TABLE folds (
            job TEXT NOT NULL,
            part TEXT NOT NULL,
            seq INTEGER NOT NULL,
            code TEXT NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (job, part)
        ) WITHOUT ROWID
        """,
    ),
    (INDEX,),
)


def migrate(connection: sqlite3.Connection) -> None:
    """Take the missing steps, all in one transaction.

    An older ledger that this user may not write to is left as it is: it can be read. Raises
    LedgerError where the file belongs to a newer costopt or to another program, and sqlite3.Error
    where SQLite refuses.
    """
    done = _version(connection)
    if done == len(SQLITE_MIGRATIONS):
        return
    try:
        _take(connection)
    except sqlite3.OperationalError as error:
        if not done or not error.sqlite_errorname.startswith("SQLITE_READONLY"):
            raise


def _take(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = _version(connection)
        for step in SQLITE_MIGRATIONS[done:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(SQLITE_MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version or application):
        raise LedgerError(
            "the file is a SQLite database of another program",
            hint="name another file for the ledger",
            code="foreign_database",
        )
    if version > len(SQLITE_MIGRATIONS):
        raise LedgerError(
            f"the ledger has version {version}, this costopt knows {len(SQLITE_MIGRATIONS)}",
            hint="upgrade costopt, or name another file for the ledger",
            code="wrong_version",
        )
    return int(version)
