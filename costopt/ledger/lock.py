"""One controller per job and ledger, held to it by an advisory lock that dies with its process."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from costopt.domain.errors import LedgerError


def lock_path(ledger: Path, job: str) -> Path:
    """The lock file of a job: beside the ledger, named by a digest since a job's name may be."""
    digest = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return ledger.with_name(f"{ledger.name}.{digest}.lock")


@contextmanager
def controller_lock(ledger: Path, job: str) -> Iterator[None]:
    """Hold the job; raises LedgerError where another controller does.

    The file stays behind: removing it would let two controllers lock two files of one name.
    """
    path = lock_path(ledger, job)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LedgerError(
            f"cannot lock job {job!r} in ledger {ledger}: {error.strerror}",
            hint="give this user write permission on the ledger's folder",
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
        ) from error
