"""Who may write: a file lock, or a lease with a fencing token on PostgreSQL.

Leadership among daemons on one SQLite file, by a lock that dies with its process.

A leader that is stopped keeps the lock, so it needs no lease; only PostgreSQL lets another daemon
take over from one that is stopped or cut off.

Leadership among daemons on one PostgreSQL, by a lease that needs no common clock.

The leader's renewals are counted. A daemon that sees the count stand still for a whole lease, by
its own steady clock, takes over. The leader counts its lease from before it asked for the renewal,
so it knows that it may have lost the lease before anyone can have taken it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from costopt.database.migrations import SqlConnection, Transaction
from costopt.domain.errors import LeadershipLostError, LedgerError
from costopt.ledger.base import FencedLedger
from costopt.ledger.locks import leader_lock_path, try_lock


class FileLeadership:
    """Implements the Leadership port."""

    def __init__(self, ledger: FencedLedger, path: Path, holder: str) -> None:
        """``path`` is the ledger's file, beside which the lock's is."""
        self._ledger = ledger
        self._path = path
        self._holder = holder
        self._lock = Lock()
        self._descriptor: int | None = None
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """Whether the lock is held and nobody has raised the fence nevertheless."""
        return self._leads

    @property
    def fence(self) -> int | None:
        """The number under which it was held last."""
        return self._ledger.fence

    def acquire(self) -> bool:
        """Take the lock, or find that it is held still. Raises LedgerError."""
        with self._lock:
            if self._descriptor is not None:
                return self._is_held()
            if not self._locked():
                return False
            try:
                self._ledger.increment_fencing_token(self._holder)
            except BaseException:
                self._let_go()
                raise
            self._leads = True
            return True

    def renew(self) -> bool:
        """Find whether it is held still. Raises LedgerError."""
        with self._lock:
            return self._descriptor is not None and self._is_held()

    def check(self) -> None:
        """Raises LeadershipLostError unless it leads."""
        if not self._leads:
            raise LeadershipLostError(
                f"ledger {self._path}: {self._holder} does not lead",
                hint="nothing was done; it stands by until it leads again",
            )

    def release(self) -> None:
        """Let another one lead at once."""
        with self._lock:
            self._let_go()

    def _is_held(self) -> bool:
        self._leads = self._ledger.last_fence() == self.fence
        if not self._leads:
            self._let_go()
        return self._leads

    def _locked(self) -> bool:
        path = leader_lock_path(self._path)
        try:
            self._descriptor = try_lock(path)
        except OSError as error:
            raise LedgerError(
                f"cannot lock ledger {self._path}: {error.strerror}",
                hint="give this user write permission on the ledger's folder",
                code="cannot_lock",
            ) from error
        return self._descriptor is not None

    def _let_go(self) -> None:
        self._leads = False
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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
