"""What a process appended to a ledger last, so that a server that lost commits gets them again.

A PostgreSQL standby that is promoted lacks the commits that the failed primary did not wait for it
to receive. Numbers that readers may have seen are not given to other events: an append goes on
after the highest number that this process wrote or read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock

from costopt.database.migrations import Values
from costopt.domain.errors import LedgerError
from costopt.ledger.checksums import seal

MAX_EVENTS = 10_000
COMMITS_LOST = "commits_lost"


class AppendedEvents:
    """The newest rows that were appended. ``last`` is the number that the database must hold."""

    def __init__(self) -> None:
        self.last = 0
        self._floor = 0
        self._rows: deque[Values] = deque(maxlen=MAX_EVENTS)
        self._lock = Lock()

    def observe(self, seq: int) -> None:
        """Note that an event with this number was committed."""
        with self._lock:
            self.last = max(self.last, seq)
            self._floor = max(self._floor, seq)

    def add(self, rows: Sequence[Values]) -> None:
        """Note that these were committed."""
        self.observe(rows[-1]["seq"])
        self._rows.extend(rows)

    def number(self, what: str, last: int, rows: Sequence[Values]) -> list[Values]:
        """Return the rows with the numbers that follow the database's ``last``, and checksums.
        Raise LedgerError where it lacks what was committed."""
        if last < self.last:
            raise LedgerError(
                f"{what}: it lost the events {last + 1} to {self.last}, which it had committed",
                hint="they are written again if this daemon still has them; let the server wait for"
                " its standby: synchronous_standby_names",
                code=COMMITS_LOST,
            )
        numbered, first = [], max(last, self._floor) + 1
        for seq, row in enumerate(rows, first):
            numbered.append({**row, "seq": seq, "body": seal(row["body"], seq, last)})
            last = seq
        return numbered

    def lost_after(self, last: int, body: str | None) -> list[Values]:
        """Return the rows that follow the database's ``last`` event, whose body is ``body``, up to
        the newest; none unless all of them are known and that event is the one known."""
        rows = [row for row in self._rows if row["seq"] > last]
        before = [row for row in self._rows if row["seq"] == last]
        is_whole = bool(rows) and (rows[0]["seq"], rows[-1]["seq"]) == (last + 1, self.last)
        is_same = not before or before[0]["body"] == body
        return rows if is_whole and is_same else []

    def accept_loss(self, last: int) -> None:
        """Go on with a database that ends with ``last``; lost numbers are not used again."""
        with self._lock:
            self.last = last
            self._rows.clear()
