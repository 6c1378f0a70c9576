"""Backups of SQLite files, verified before they count, and their restoration.

A copy is made by SQLite's online backup, so that it is one consistent state while others write
(sqlite.org/backup.html). Backups of PostgreSQL databases are their administrator's task.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from costopt.database.failures import sqlite_error
from costopt.database.sqlite import COMPANIONS, make_private
from costopt.domain.errors import LedgerError

SUFFIX = ".backup"
TIME_FORMAT = "%Y%m%dT%H%M%S%fZ"
ROOM_TIMES = 2
"""A copy is made only if the disk has room for so many copies."""
CHECKSUM_LENGTH = 16
CHECKSUM = re.compile(f"[0-9a-f]{{{CHECKSUM_LENGTH}}}")
FindFault = Callable[[Path], str]
"""Returns what is wrong with a file, "" if nothing is."""


def find_corruption(path: Path) -> str:
    """Return the first corruption of a file, "" where there is none, or no file.

    Reads every page, and compares indexes with tables. Raises LedgerError where the file cannot be
    read.
    """
    if not path.exists():
        return ""
    try:
        with closing(_opened(path)) as connection:
            (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except UnicodeDecodeError as error:
        return str(error)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return str(error)
        raise sqlite_error(str(path), error) from error
    return "" if said == "ok" else " ".join(str(said).split())


def create_backup(
    path: Path, backups: Path, keep: int, now: datetime, find_fault: FindFault = find_corruption
) -> Path:
    """Make a copy in the folder, retaining the newest ``keep`` in total, and return it. Its name
    ends in a checksum.

    Raises LedgerError, and then no copy is removed: a copy with a fault does not count, and one
    that would fill the disk is not made.
    """
    stem = f"{path.name}.{now.astimezone(UTC).strftime(TIME_FORMAT)}"
    part = backups / f"{stem}{SUFFIX}.part"
    try:
        backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_room(path, backups)
        _copy(path, part)
        fault = find_fault(part)
        if fault:
            raise LedgerError(
                f"{path} is corrupt ({fault})", hint=f"restore it from {backups}", code="corrupt"
            )
        target = backups / f"{stem}.{_checksum(part)}{SUFFIX}"
        part.rename(target)
        _sync(backups)
        for old in list_backups(path, backups)[:-keep]:
            old.unlink(missing_ok=True)
    except sqlite3.Error as error:
        raise sqlite_error(f"the backup of {path}", error) from error
    except OSError as error:
        raise LedgerError(
            f"the backup of {path} failed: {error.strerror or error}",
            hint=f"free some space, and let this user write to {backups}",
            code="backup_failed",
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target


def list_backups(path: Path, backups: Path) -> tuple[Path, ...]:
    """Return the copies of this file, oldest first."""
    return tuple(sorted(backups.glob(f"{glob.escape(path.name)}.*{SUFFIX}")))


def backup_time(copy: Path) -> datetime:
    """Return when a copy was made."""
    timestamp, _ = _parts(copy)
    return datetime.strptime(timestamp, TIME_FORMAT).replace(tzinfo=UTC)


def restore(
    path: Path, backups: Path, now: datetime, find_fault: FindFault = find_corruption
) -> tuple[Path, Path | None]:
    """Put the newest sound copy in place of the file, which is retained under another name.

    Returns the copy, and where the file is now, None where there was none. No process may have the
    file open. Raises LedgerError where there is no sound copy.
    """
    copies = reversed(list_backups(path, backups))
    copy = next((copy for copy in copies if _is_as_made(copy) and not find_fault(copy)), None)
    if copy is None:
        raise LedgerError(
            f"there is no sound backup of {path} in {backups}",
            hint=f"save the remaining events: sqlite3 {path} .recover | sqlite3 NEW",
            code="no_backup",
        )
    fresh = path.with_name(f"{path.name}.restored")
    aside = path.with_name(f"{path.name}.corrupt-{now.astimezone(UTC).strftime(TIME_FORMAT)}")
    try:
        fresh.unlink(missing_ok=True)
        make_private(fresh, create=True)
        shutil.copyfile(copy, fresh)
        _sync(fresh)
        make_private(path, create=False)
        kept = _put_aside(path, aside)
        fresh.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be restored: {error.strerror or error}",
            hint="let this user write to its folder, and free some space",
        ) from error
    return copy, kept


def _parts(copy: Path) -> tuple[str, str]:
    """Return the time and the checksum in a copy's name; "" where it was made without one."""
    words = copy.name.removesuffix(SUFFIX).split(".")
    return (words[-2], words[-1]) if CHECKSUM.fullmatch(words[-1]) else (words[-1], "")


def _is_as_made(copy: Path) -> bool:
    _, checksum = _parts(copy)
    return checksum in ("", _checksum(copy))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:CHECKSUM_LENGTH]


def _check_room(path: Path, backups: Path) -> None:
    """Raise LedgerError if a backup could fill the disk."""
    free = shutil.disk_usage(backups).free
    if free < ROOM_TIMES * path.stat().st_size:
        raise LedgerError(
            f"the backup of {path} was not made: {free / 2**30:.1f} GiB are free in {backups}",
            hint="free some space, or keep fewer backups",
            code="no_space",
        )


def _copy(path: Path, part: Path) -> None:
    make_private(part, create=True)
    with (
        closing(_opened(path)) as source,
        closing(sqlite3.connect(part, isolation_level=None)) as target,
    ):
        source.backup(target)
        # One file, with no companions that could be left behind.
        target.execute("PRAGMA journal_mode = DELETE")
    _sync(part)


def _opened(path: Path) -> sqlite3.Connection:
    place = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(place, uri=True, isolation_level=None)


def _put_aside(path: Path, aside: Path) -> Path | None:
    for companion in COMPANIONS:
        left = path.with_name(path.name + companion)
        if left.exists():
            left.rename(aside.with_name(aside.name + companion))
    if not path.exists():
        return None
    path.rename(aside)
    return aside


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
