"""Leadership among daemons on one SQLite file, by a lock that dies with its process.

A leader that is stopped keeps the lock, so it needs no lease; only PostgreSQL lets another daemon
take over from one that is stopped or cut off.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from costopt.domain.errors import LeadershipLostError, LedgerError
from costopt.ledger.lock import leader_lock_path, try_lock
from costopt.ledger.stored import FencedLedger


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
