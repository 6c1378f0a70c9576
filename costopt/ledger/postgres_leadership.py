"""Leadership among daemons on one PostgreSQL, by a lease that needs no common clock.

The leader's renewals are counted. A daemon that sees the count stand still for a whole lease, by
its own steady clock, takes over. The leader counts its lease from before it asked for the renewal,
so it knows that it may have lost the lease before anyone can have taken it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from costopt.database.migrations import SqlConnection, Transaction
from costopt.domain.errors import LeadershipLostError
from costopt.ledger.stored import FencedLedger


def monotonic_s() -> float:
    """Seconds that also pass while the process is stopped or the machine asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _LeaseRow:
    holder: str
    fence: int
    beat: int
    lease_s: float


class PostgresLeadership:
    """Implements the Leadership port. Its owner's name may only be that of its dead predecessor."""

    def __init__(
        self,
        ledger: FencedLedger,
        database: SqlConnection,
        holder: str,
        lease_s: float,
        now_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self._ledger = ledger
        self._database = database
        self._holder = holder
        self._lease_s = lease_s
        self._now_s = now_s
        self._lock = Lock()
        self._held_until_s = -math.inf
        self._seen: tuple[int, int] | None = None
        self._seen_s = 0.0
        self._asked_before = False

    @property
    def is_leader(self) -> bool:
        """Whether the lease certainly stands."""
        return self._now_s() < self._held_until_s

    @property
    def fence(self) -> int | None:
        """The number under which it was held last."""
        return self._ledger.fence

    def acquire(self) -> bool:
        """Renew the lease, or take it from a leader that is gone. Raises LedgerError."""
        with self._lock:
            asked_s = self._now_s()
            with self._database.writing() as transaction:
                fence = self._renewed(transaction) or self._acquire(transaction)
            self._asked_before = True
            if fence is not None:
                self._ledger.fence = fence
            return self._note(fence is not None, asked_s)

    def renew(self) -> bool:
        """Renew the lease where it still stands, else look how the leader does.

        Raises LedgerError.
        """
        with self._lock:
            asked_s = self._now_s()
            with self._database.writing() as transaction:
                fence = self._renewed(transaction)
                if fence is None:
                    self._look_at(_row(transaction))
            return self._note(fence is not None, asked_s)

    def check(self) -> None:
        """Raises LeadershipLostError where the lease may have run out."""
        if not self.is_leader:
            raise LeadershipLostError(
                f"{self._database.what}: {self._holder} does not lead, or not for sure",
                hint="nothing was done; it stands by until it leads again",
            )

    def release(self) -> None:
        """Let another one lead at once."""
        with self._lock:
            self._held_until_s = -math.inf
            with self._database.writing() as transaction:
                transaction.execute(
                    "UPDATE leadership SET holder = '', beat = beat + 1"
                    " WHERE holder = :holder AND fence = :fence",
                    {"holder": self._holder, "fence": self.fence},
                )

    def _note(self, held: bool, asked_s: float) -> bool:
        self._held_until_s = asked_s + self._lease_s if held else -math.inf
        return held

    def _renewed(self, transaction: Transaction) -> int | None:
        renewed = transaction.execute(
            "UPDATE leadership SET beat = beat + 1, lease_s = :lease_s"
            " WHERE holder = :holder AND fence = :fence RETURNING fence",
            {"holder": self._holder, "fence": self.fence, "lease_s": self._lease_s},
        )
        return self.fence if renewed else None

    def _acquire(self, transaction: Transaction) -> int | None:
        row = _row(transaction)
        if not self._is_free(row):
            return None
        transaction.execute(
            "UPDATE leadership SET holder = :holder, fence = :fence, beat = 0, lease_s = :s",
            {"holder": self._holder, "fence": row.fence + 1, "s": self._lease_s},
        )
        return row.fence + 1

    def _is_free(self, row: _LeaseRow) -> bool:
        if not row.holder or (row.holder == self._holder and not self._asked_before):
            return True
        self._look_at(row)
        return self._now_s() - self._seen_s >= row.lease_s

    def _look_at(self, row: _LeaseRow) -> None:
        if self._seen != (row.fence, row.beat):
            self._seen, self._seen_s = (row.fence, row.beat), self._now_s()


def _row(transaction: Transaction) -> _LeaseRow:
    (row,) = transaction.execute("SELECT holder, fence, beat, lease_s FROM leadership")
    return _LeaseRow(*row)
