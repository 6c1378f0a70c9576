"""The registry's newest writes, so that a server that lost commits gets them again.

See ``costopt.ledger.appended_events``. Operator actions are numbered, so a number that the server
does not hold any more shows the loss. What is recorded is the SQL of each transaction.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from sqlalchemy import Connection, event, func, select

from costopt.database.connection import Database
from costopt.registry.schema import CHANGES

MAX_TRANSACTIONS = 1000
PENDING = "costopt_pending_writes"

Statement = tuple[str, Any]


class RedoLog:
    """The newest transactions of this process; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last = 0
        self._is_restoring = False
        self._writes: deque[tuple[int, tuple[Statement, ...]]] = deque(maxlen=MAX_TRANSACTIONS)
        if database.on_postgres:
            event.listen(database.engine, "after_cursor_execute", self._record)
            event.listen(database.engine, "commit", self._commit)
            event.listen(database.engine, "rollback", self._forget)

    def restore(self) -> tuple[int, int] | None:
        """Write the transactions again that the server lost; return the first and last number of
        their operator actions, None where none was lost. Raises LedgerError, and then goes on
        without them."""
        with self._database.read_transaction() as connection:
            last = _last_number(connection)
        if last >= self._last:
            return None
        first, lost, self._last = last + 1, self._last, last
        self._is_restoring = True
        try:
            with self._database.write_transaction() as connection:
                for number, statements in tuple(self._writes):
                    if number > last:
                        for sql, values in statements:
                            connection.exec_driver_sql(sql, values)
            self._last = lost
        finally:
            self._is_restoring = False
        return first, lost

    def _record(
        self, connection: Connection, _cursor: Any, sql: str, values: Any, *_rest: Any
    ) -> None:
        if not sql.lstrip().startswith("SELECT") and not self._is_restoring:
            connection.info.setdefault(PENDING, []).append((sql, values))

    def _commit(self, connection: Connection) -> None:
        statements: list[Statement] = connection.info.pop(PENDING, [])
        numbers = [values["number"] for sql, values in statements if "INTO changes" in sql]
        if numbers:
            self._last = max(self._last, *numbers)
            self._writes.append((numbers[-1], tuple(statements)))

    def _forget(self, connection: Connection) -> None:
        connection.info.pop(PENDING, None)


def _last_number(connection: Connection) -> int:
    return connection.scalar(select(func.max(CHANGES.c.number))) or 0
