"""Numbered steps that make and change tables, forward only, with SQLAlchemy.

Each step is taken in a transaction of its own, together with its number. A step, once released,
never changes: later needs are later steps. Statements are SQL that SQLite and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Connection, text

from costopt.domain.errors import LedgerError

Migration = tuple[str, ...]
Begin = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps of one part of a database, which keeps their count in a table of its own."""

    part: str
    steps: Sequence[Migration]

    @property
    def table(self) -> str:
        """Where the number of the last step taken stands."""
        return f"{self.part}_version"

    def apply(self, begin: Begin) -> None:
        """Take the missing steps.

        ``begin`` gives a connection in a transaction that keeps other writers out. Raises
        LedgerError where a newer costopt made the tables.
        """
        while self._take_next(begin):
            pass

    def _take_next(self, begin: Begin) -> bool:
        with begin() as connection:
            connection.execute(
                text(f"CREATE TABLE IF NOT EXISTS {self.table} (version INTEGER NOT NULL)")
            )
            done = connection.scalar(text(f"SELECT max(version) FROM {self.table}")) or 0  # noqa: S608
            if done > len(self.steps):
                raise LedgerError(
                    f"the {self.part} has version {done}, this costopt knows {len(self.steps)}",
                    hint="upgrade costopt, or name another database",
                    code="wrong_version",
                )
            if done == len(self.steps):
                return False
            for statement in self.steps[done]:
                connection.execute(text(statement))
            connection.execute(
                text(f"INSERT INTO {self.table} (version) VALUES (:version)"),  # noqa: S608
                {"version": done + 1},
            )
        return True
