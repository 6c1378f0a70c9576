"""A SQLite file through sqlite3 alone: one writer, any number of readers meanwhile.

Write-ahead logging with ``synchronous = FULL``: a transaction is on the disk when it returns, and
a crash leaves whole transactions only (sqlite.org/wal.html,
sqlite.org/pragma.html#pragma_synchronous). Only their owner may read the files: they hold jobs,
costs and digests of tokens.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from costopt.database.failures import corrupt_error, sqlite_error, text_error
from costopt.database.migrations import Transaction, Values

BUSY_TIMEOUT_S = 10.0


class SqliteConnection:
    """Implements SqlConnection. A read-only file can be read."""

    def __init__(
        self, what: str, path: Path, *, create: bool = False, read_only: bool = False
    ) -> None:
        """Open the file, or with ``create`` make it if it is missing; with ``read_only`` neither
        it nor its permissions change. Raises LedgerError."""
        self.what = what
        self._lock = Lock()
        with self._errors():
            self._connection = (
                _open_for_reading(path) if read_only else _open(path, "rwc" if create else "rw")
            )
        self._transaction = _SqliteStatements(self._connection)

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    def set_durable(self) -> None:
        """Switch permanently to the write-ahead log and durable commits. Raises LedgerError."""
        with self.reading() as connection:
            if connection.execute("PRAGMA journal_mode") != [("wal",)]:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read; each statement sees what is committed at its start. Raises LedgerError."""
        with self._lock, self._errors():
            yield self._transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Write all or nothing, durably, one writer at a time. Raises LedgerError."""
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._transaction
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise sqlite_error(self.what, error) from error
        except UnicodeEncodeError as error:
            raise text_error(self.what, error) from error
        except UnicodeDecodeError as error:  # of a name in SQLite's own message
            raise corrupt_error(self.what, error) from error


class _SqliteStatements:
    """Implements Transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Values | None = None) -> list[Any]:
        return self._connection.execute(sql, values or {}).fetchall()

    def executemany(self, sql: str, rows: Sequence[Values]) -> None:
        self._connection.executemany(sql, rows)

    def has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
        return bool(self.execute(query, {"name": name}))


def _open(path: Path, mode: str) -> sqlite3.Connection:
    make_private(path, create=mode == "rwc")
    return _connect(path, f"mode={mode}")


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Where SQLite cannot create the companions of a file, as in a backup on a read-only disk, and
    no writer has left any, the file alone holds everything."""
    is_alone = not any(path.with_name(path.name + suffix).exists() for suffix in COMPANIONS)
    if is_alone and not os.access(path.parent, os.W_OK, effective_ids=True):
        return _connect(path, "mode=ro&immutable=1")
    return _connect(path, "mode=ro")


def _connect(path: Path, query: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{query}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


OWNER_ONLY = 0o600
OTHERS = 0o077
COMPANIONS = ("-wal", "-shm")


def make_private(path: Path, *, create: bool) -> None:
    """Remove the permissions of group and others from the file and its companions.

    SQLite creates the companions with the permissions of the file, so a missing file that is to be
    created is created here first. What cannot be changed or created is left for SQLite to report.
    """
    if create:
        with suppress(OSError):
            # Only a file that is not there: to open and close one drops this process's locks of it.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, OWNER_ONLY))
    for each in (path, *(path.with_name(path.name + suffix) for suffix in COMPANIONS)):
        with suppress(OSError):
            mode = each.stat().st_mode
            if mode & OTHERS:
                each.chmod(mode & ~OTHERS & 0o777)
