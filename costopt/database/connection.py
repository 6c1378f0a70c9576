"""Transactions of SQLAlchemy on a SQLite file or a PostgreSQL server, with the same behavior.

A writing transaction keeps other writers of the same part out from its beginning: on SQLite by
BEGIN IMMEDIATE, on PostgreSQL by an advisory lock. Waiting has a timeout on both.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any

from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as NoConnectionInTimeError

from costopt.database.database_url import is_url, postgres_url, redacted_url
from costopt.database.failures import (
    connection_lost_error,
    corrupt_error,
    postgres_error,
    sqlite_error,
    text_error,
)
from costopt.database.migrations import Transaction, Values
from costopt.database.sqlite import make_private
from costopt.domain.errors import LedgerError

BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5
START_TIMEOUT_S = 600.0
START_INTERVAL_S = 1.0
NOT_UP = ("08", "57P", "53300")
"""SQLSTATEs of a server that cannot be reached, starts or ends, or has no connection left."""
IDLE_TRANSACTION_S = 5
"""A process that is idle in a transaction for this long loses it, with its locks."""


class Database:
    """One part ("ledger", "registry") of a database; safe to share between threads.

    Implements SqlConnection, for SQL that is text; ``read_transaction`` and ``write_transaction``
    take SQLAlchemy's statements.
    """

    def __init__(self, part: str, place: Path | str, lock: int, *, read_only: bool = False) -> None:
        """``lock`` is the part's advisory lock on PostgreSQL; on a server, ``read_only`` makes it
        refuse every write. Connects at first use."""
        self.part = part
        if is_url(place):
            url = postgres_url(str(place))
            self.what = f"{part} {redacted_url(url)}"
            self.engine = _postgres_engine(url, read_only)
        else:
            self.what = f"{part} {place}"
            self.engine = _sqlite_engine(Path(place))
        self.on_postgres = is_url(place)
        self._writer = self.engine.execution_options(costopt_writes=True)
        self._lock = lock

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Read one consistent state. Raises LedgerError."""
        with self._translated_errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Write all or nothing, durably, one writer at a time. Raises LedgerError."""
        with self._translated_errors(), self._writer.connect() as connection, connection.begin():
            if self.on_postgres:
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": self._lock}
                )
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one consistent state. Raises LedgerError."""
        with self.read_transaction() as connection:
            yield _SqlAlchemyStatements(connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Write all or nothing, durably, one writer at a time. Raises LedgerError."""
        with self.write_transaction() as connection:
            yield _SqlAlchemyStatements(connection)

    @contextmanager
    def session(self) -> Iterator[Transaction]:
        """Open a separate connection, each statement a transaction, closed at the end.

        Raises LedgerError.
        """
        with self._translated_errors():
            connection = self.engine.connect()
            try:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                yield _SqlAlchemyStatements(connection)
            finally:
                connection.invalidate()
                connection.close()

    def close(self) -> None:
        """Close all connections; one that is used again is opened again."""
        self.engine.dispose()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._refusal(error.orig or error) from error
        except PendingRollbackError as error:
            # The connection was found lost and is used again before its transaction has ended.
            raise connection_lost_error(self.what, error) from error
        except NoConnectionInTimeError as error:
            raise LedgerError(
                f"{self.what}: all connections are in use ({error})",
                hint="try again later",
                code="no_connections",
            ) from error
        except UnicodeEncodeError as error:
            raise text_error(self.what, error) from error
        except UnicodeDecodeError as error:  # of a name in SQLite's own message
            raise corrupt_error(self.what, error) from error

    def _refusal(self, error: BaseException) -> LedgerError:
        if isinstance(error, sqlite3.Error):
            return sqlite_error(self.what, error)
        return postgres_error(self.what, error)


class _SqlAlchemyStatements:
    """Implements Transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Values | None = None) -> list[Any]:
        result = self._connection.execute(_statement(sql), values or {})
        return list(result) if result.returns_rows else []

    def executemany(self, sql: str, rows: Sequence[Values]) -> None:
        if rows:
            self._connection.execute(_statement(sql), rows)

    def has_table(self, name: str) -> bool:
        return inspect(self._connection).has_table(name)


@lru_cache
def _statement(sql: str) -> TextClause:
    return text(sql)


def wait_for_server(url: str, ended: Event, say: Callable[[str], None]) -> bool:
    """Wait until a PostgreSQL server accepts connections, which it refuses while it starts or
    recovers. Return False where ``ended`` was set meanwhile.

    Raises LedgerError where it does not within ``START_TIMEOUT_S``, and at once for another reason.
    """
    database, give_up_at, said = Database("database", url, 0), None, ""
    try:
        while not ended.is_set():
            try:
                with database.reading():
                    return True
            except LedgerError as error:
                now_s = time.monotonic()
                give_up_at = give_up_at or now_s + START_TIMEOUT_S
                if not error.code.startswith(NOT_UP) or now_s >= give_up_at:
                    raise
                if error.message != said:
                    said = error.message
                    say(f"waiting for the database: {said}")
            ended.wait(START_INTERVAL_S)
    finally:
        database.close()
    return False


def _postgres_engine(url: URL, read_only: bool) -> Engine:
    options = " ".join(
        f"-c {name}={value}"
        for name, value in {
            "synchronous_commit": "on",
            "timezone": "UTC",
            "lock_timeout": f"{BUSY_TIMEOUT_S:.0f}s",
            "statement_timeout": "60s",
            "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_S}s",
            **({"default_transaction_read_only": "on"} if read_only else {}),
        }.items()
    )
    return create_engine(
        url,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "costopt",
            "options": options,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
        pool_pre_ping=True,
        pool_size=5,
        max_overflow=5,
        pool_timeout=BUSY_TIMEOUT_S,
    )


def _sqlite_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path.absolute())),
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    )

    def keep_private(*_: object) -> None:
        make_private(path, create=True)

    event.listen(engine, "do_connect", keep_private)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    # SQLAlchemy begins transactions itself: sqlite3 must not begin others.
    connection.isolation_level = None
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if journal != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("costopt_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
