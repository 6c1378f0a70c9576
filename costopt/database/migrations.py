"""Numbered steps that create and change tables, forward only, on every database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from costopt.domain.errors import LedgerError

Migration = tuple[str, ...]
Values = dict[str, Any]


class Transaction(Protocol):
    """Statements with ``:name`` for values; all of one transaction take effect, or none."""

    def execute(self, sql: str, values: Values | None = None) -> list[Any]:
        """Return the rows that the statement returns, none for one that returns none."""
        ...

    def executemany(self, sql: str, rows: Sequence[Values]) -> None:
        """Execute the statement once for each row of values."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether the table exists."""
        ...


class SqlConnection(Protocol):
    """A database, reached by sqlite3 or by SQLAlchemy; safe to share between threads."""

    what: str
    """Names it in messages, such as "ledger PATH"; without passwords."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read what is committed. Raises LedgerError."""
        ...

    def writing(self) -> AbstractContextManager[Transaction]:
        """Write all or nothing, durably, while other writers wait. Raises LedgerError."""
        ...

    def close(self) -> None:
        """Release files and connections; closing twice is not an error."""
        ...


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps of one part of a database, such as "ledger".

    Each step is taken in a transaction, together with its number: the first creates ``table`` and
    is number ``first``. A released step never changes: later needs are later steps.
    """

    part: str
    table: str
    steps: Sequence[Migration]
    first: int = 1

    @property
    def latest(self) -> int:
        """Return the version of a database to which all steps were applied."""
        return self.first + len(self.steps) - 1

    def apply(self, connection: SqlConnection, *, create: bool = True) -> None:
        """Apply the missing steps; a database that is up to date is only read.

        Raises LedgerError for tables of a version that this costopt does not know, for those of
        another program, and without ``create`` for a database that lacks the part.
        """
        with connection.reading() as transaction:
            version = self._version(connection, transaction)
        if version is None and not create:
            raise LedgerError(
                f"{connection.what}: the database holds no {self.part}",
                hint=f"check the address; a {self.part} is made by the daemon that first uses it;"
                " if it held one, restore it",
                code="missing",
            )
        while version != self.latest:
            with connection.writing() as transaction:
                version = self._version(connection, transaction)
                if version != self.latest:
                    version = self._take_next(transaction, version)

    def _take_next(self, transaction: Transaction, version: int | None) -> int:
        taken = self.first if version is None else version + 1
        if version is None:
            transaction.execute(f"CREATE TABLE {self._versions} (version INTEGER NOT NULL)")
        for statement in self.steps[taken - self.first]:
            transaction.execute(statement)
        transaction.execute(
            f"INSERT INTO {self._versions} (version) VALUES (:version)",  # noqa: S608
            {"version": taken},
        )
        return taken

    def _version(self, connection: SqlConnection, transaction: Transaction) -> int | None:
        """Return the last applied step, None before the first."""
        # In this order: another process may commit the first step between the two questions.
        has_own_table = transaction.has_table(self.table)
        if not transaction.has_table(self._versions):
            if has_own_table:
                raise LedgerError(
                    f"{connection.what}: its table {self.table} has no version",
                    hint="another program or an unreleased costopt made it: name another database;"
                    " or it is damaged: restore it",
                    code="wrong_version",
                )
            return None
        ((version,),) = transaction.execute(f"SELECT max(version) FROM {self._versions}")  # noqa: S608
        if not isinstance(version, int) or not self.first <= version <= self.latest:
            raise LedgerError(
                f"{connection.what}: the {self.part} has version {version}, this costopt knows"
                f" {self.first} to {self.latest}",
                hint="use the costopt that wrote it, or name another database; if none wrote it,"
                " restore it",
                code="wrong_version",
            )
        return version

    @property
    def _versions(self) -> str:
        return f"{self.part}_version"
