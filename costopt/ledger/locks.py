"""One controller per job and ledger, by advisory locks.

The lock of a ledger in a file is released when its process ends, on PostgreSQL with its session.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from costopt.database.migrations import SqlConnection, Transaction
from costopt.domain.errors import LedgerError


def lock_path(ledger: Path, job: str) -> Path:
    """Return the lock file of a job: next to the ledger, named by a digest of the job's name."""
    digest = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return ledger.with_name(f"{ledger.name}.{digest}.lock")


def leader_lock_path(ledger: Path) -> Path:
    """Return the lock file of the daemon that leads all jobs of a ledger."""
    return ledger.with_name(f"{ledger.name}.leader.lock")


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None where another one holds it.

    Raises OSError where the file cannot be made or opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def assert_unused(ledger: Path) -> Iterator[None]:
    """Keep daemons and runs away from the ledger. Raises LedgerError where one controls a job."""
    paths = {leader_lock_path(ledger), *ledger.parent.glob(f"{glob.escape(ledger.name)}.*.lock")}
    held: list[int] = []
    try:
        for path in sorted(paths):
            descriptor = try_lock(path)
            if descriptor is None:
                raise LedgerError(
                    f"ledger {ledger} is in use",
                    hint="end the daemon, and the runs, first",
                    code="in_use",
                )
            held.append(descriptor)
        yield
    except OSError as error:
        raise LedgerError(
            f"cannot lock ledger {ledger}: {error.strerror or error}",
            hint="give this user write permission on the ledger's folder",
            code="cannot_lock",
        ) from error
    finally:
        for descriptor in held:
            os.close(descriptor)


@contextmanager
def controller_lock(ledger: Path, job: str) -> Iterator[None]:
    """Hold the job. Raises LedgerError where another controller does.

    The file remains: removing it would let two controllers lock two files of one name.
    """
    path = lock_path(ledger, job)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LedgerError(
            f"cannot lock job {job!r} in ledger {ledger}: {error.strerror}",
            hint="give this user write permission on the ledger's folder",
            code="cannot_lock",
        ) from error
    try:
        _take(descriptor, ledger, job)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, ledger: Path, job: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise LedgerError(
            f"job {job!r} in ledger {ledger} already has a controller (process {holder})",
            hint="wait for it or stop it; `costopt status` shows what it does",
            code="controlled",
        ) from error


_HOLDER = """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low
"""


class Sessions(SqlConnection, Protocol):
    """A database that provides separate connections."""

    def session(self) -> AbstractContextManager[Transaction]:
        """Return a separate connection, closed at the end. Raises LedgerError."""
        ...


@contextmanager
def postgres_controller_lock(database: Sessions, job: str) -> Iterator[None]:
    """Hold the job. Raises LedgerError where another controller does."""
    key = int.from_bytes(
        sha256(job.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True
    )
    with database.session() as session:
        ((is_held,),) = session.execute("SELECT pg_try_advisory_lock(:key)", {"key": key})
        if not is_held:
            high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
            holders = [pid for (pid,) in session.execute(_HOLDER, {"high": high, "low": low})]
            raise LedgerError(
                f"job {job!r} in {database.what} already has a controller"
                f" (session {holders[0] if holders else 'unknown'} of the server)",
                hint="wait for it or stop it; `costopt status` shows what it does",
                code="controlled",
            )
        yield
