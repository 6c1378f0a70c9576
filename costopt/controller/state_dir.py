"""A state directory: its ledger, the clocks of its jobs, and who uses it.

It is used by runs or by daemons, never by both at once. Each of them holds its kind's lock together
with the others of its kind, for as long as its process lives, and begins only if no process holds
the other kind's.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from costopt.domain.errors import LedgerError, StoreError
from costopt.ledger.base import DurableLedger
from costopt.ledger.sql_ledger import SqlLedger, open_sqlite_ledger

LEDGER = "ledger.sqlite"
CLOCK = "clock.json"
SOCKET = "daemon.sock"
"""The socket of the daemon of the directory."""
CLOUD = "cloud"
"""The folder of a daemon's site, which is a simulated cloud where there is a clock in it."""
STORE, NODES = "store", "nodes"
"""The folders of a simulated cloud: the object store of its jobs, and its machines."""
RUNS, DAEMONS = "runs.lock", "daemons.lock"
LOCK_ATTEMPTS = 5
PAUSE_S = 0.05
"""Another one of our kind that begins as well may hold the lock for the moment of its own look."""


def make_state_dir(state_dir: Path, name: str = "") -> Path:
    """Make the directory, which is its owner's alone, if it does not exist, and a folder in it.

    Return the folder. Raise StoreError.
    """
    folder = state_dir / name
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}",
            hint="free space, or choose a --state-dir that this user may write to",
        ) from error
    return folder


def exposure_note(state_dir: Path) -> str | None:
    """Return that others may open the directory, which may be older or a person's; else None."""
    try:
        mode = stat.S_IMODE(state_dir.stat().st_mode)
    except OSError:
        return None
    if not mode & 0o077:
        return None
    return (
        f"others may open the state directory {state_dir} (mode {mode:04o}): "
        f"chmod 700 {shlex.quote(str(state_dir))}"
    )


@contextmanager
def run_lock(state_dir: Path) -> Iterator[None]:
    """Keep daemons away. Raises LedgerError where one uses the directory."""
    with _held(state_dir / RUNS):
        if _is_held(state_dir / DAEMONS):
            raise LedgerError(
                f"a daemon uses the state directory {state_dir}",
                hint="hand the job to it with costopt submit, or run it in another --state-dir",
                code="in_use",
            )
        yield


@contextmanager
def daemon_lock(state_dir: Path) -> Iterator[None]:
    """Keep runs away. Raises LedgerError where one uses the directory."""
    with _held(state_dir / DAEMONS):
        if _is_held(state_dir / RUNS):
            raise LedgerError(
                f"a costopt run uses the state directory {state_dir}",
                hint="end it (costopt status shows what runs), or give the daemon another "
                "--state-dir",
                code="in_use",
            )
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _is_held(path: Path) -> bool:
    descriptor = _opened(path)
    try:
        for _ in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(PAUSE_S)
            else:
                return False
        return True
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LedgerError(
            f"cannot lock {path}: {error.strerror}",
            hint="give this user write permission on the state directory",
            code="cannot_lock",
        ) from error


def open_state_ledger(state_dir: Path, *, read_only: bool = False) -> SqlLedger:
    """Return the ledger. Raise LedgerError if nothing has run in this directory."""
    path = state_dir / LEDGER
    if not path.exists():
        raise LedgerError(
            f"nothing has run in {state_dir}: there is no ledger {path}",
            hint="name the state directory of a run (--state-dir) or a daemon (--server)",
            code="no_ledger",
        )
    return open_sqlite_ledger(path, create=False, read_only=read_only)


def check_known(ledger: DurableLedger, place: Path | str, job: str) -> None:
    """Raise LedgerError if the ledger, which is in ``place``, holds nothing of the job."""
    known = ledger.jobs()
    if job not in known:
        raise LedgerError(
            f"no job {job!r} has run in {place}",
            hint=f"jobs there: {', '.join(known) or 'none'}",
            code="unknown_job",
        )


def job_now(state_dir: Path | None, job: str, last_at: datetime) -> datetime:
    """Return the market time of a run that has its own clock, or of a daemon's simulated cloud,
    otherwise the wall clock's.

    Never before ``last_at``, its last event. None: not in a state directory.
    """
    now = datetime.now(UTC)
    folder = simulation_folder(state_dir, job)
    if folder is not None:
        from costopt.controller.market_clock import load_market_clock

        now = load_market_clock(folder / CLOCK, now, 1.0).now()
    return max(now, last_at)


def simulation_folder(state_dir: Path | None, job: str) -> Path | None:
    """Return the folder of the simulated cloud that a job of the ledger runs on, else None."""
    folders = () if state_dir is None else (state_dir / "jobs" / job, state_dir / CLOUD)
    return next((folder for folder in folders if (folder / CLOCK).exists()), None)
