"""Leadership among daemons: a file lock for SQLite, a lease with a fencing token on PostgreSQL.

The file lock is released when its process ends. A leader that is suspended retains it, so it needs
no lease; only on PostgreSQL can another daemon take over from one that is suspended or cut off.

The lease needs no common clock: the leader's renewals are counted. A daemon that sees the count
unchanged for a whole lease, by its own monotonic clock, takes over. The leader counts its lease
from before it requested the renewal, so it knows that it may have lost the lease before another
daemon can have taken it.
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
        """``path`` is the ledger's file; the lock's file is next to it."""
        self._ledger = ledger
        self._path = path
        self._holder = holder
        self._lock = Lock()
        self._descriptor: int | None = None
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """Return whether the lock is held and the fence was not raised despite it."""
        return self._leads

    @property
    def fence(self) -> int | None:
        """Return the fencing token under which it was held last, None if it never was."""
        return self._ledger.fence

    def acquire(self) -> bool:
        """Take the lock, or confirm that it is held; return whether it is. Raises LedgerError."""
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
        """Return whether the lock is still held. Raises LedgerError."""
        with self._lock:
            return self._descriptor is not None and self._is_held()

    def check(self) -> None:
        """Raise LeadershipLostError unless it leads."""
        if not self._leads:
            raise LeadershipLostError(
                f"ledger {self._path}: {self._holder} does not lead",
                hint="nothing was done; it stands by until it leads again",
            )

    def release(self) -> None:
        """Release leadership, so that another daemon can lead at once."""
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
    """Return seconds that also pass while the process is stopped or the machine asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _LeaseRow:
    holder: str
    fence: int
    beat: int
    lease_s: float


class PostgresLeadership:
    """Implements the Leadership port. Only a dead predecessor may have used the holder's name."""

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
        """Return whether the lease is certainly valid."""
        return self._now_s() < self._held_until_s

    @property
    def fence(self) -> int | None:
        """Return the fencing token under which it was held last, None if it never was."""
        return self._ledger.fence

    def acquire(self) -> bool:
        """Renew the lease, or take it from a dead leader. Raises LedgerError."""
        with self._lock:
            asked_s = self._now_s()
            with self._database.writing() as transaction:
                fence = self._renewed(transaction) or self._acquire(transaction)
            self._asked_before = True
            if fence is not None:
                self._ledger.fence, self._ledger.holder = fence, self._holder
            return self._note(fence is not None, asked_s)

    def renew(self) -> bool:
        """Renew the lease where it is still valid, else observe the leader's renewals.

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
        """Raise LeadershipLostError where the lease may have expired."""
        if not self.is_leader:
            raise LeadershipLostError(
                f"{self._database.what}: {self._holder} does not lead, or not certainly",
                hint="nothing was done; it stands by until it leads again",
            )

    def release(self) -> None:
        """Release leadership, so that another daemon can lead at once."""
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
        # A server that lost commits may have forgotten a token: none is given twice.
        fence = max(row.fence, self.fence or 0) + 1
        transaction.execute(
            "UPDATE leadership SET holder = :holder, fence = :fence, beat = 0, lease_s = :s",
            {"holder": self._holder, "fence": fence, "s": self._lease_s},
        )
        return fence

    def _is_free(self, row: _LeaseRow) -> bool:
        is_forgotten = row.fence < (self.fence or 0)
        is_own = row.holder == self._holder and (is_forgotten or not self._asked_before)
        if not row.holder or is_own:
            return True
        self._look_at(row)
        return self._now_s() - self._seen_s >= row.lease_s

    def _look_at(self, row: _LeaseRow) -> None:
        if self._seen != (row.fence, row.beat):
            self._seen, self._seen_s = (row.fence, row.beat), self._now_s()


def _row(transaction: Transaction) -> _LeaseRow:
    (row,) = transaction.execute("SELECT holder, fence, beat, lease_s FROM leadership")
    return _LeaseRow(*row)
