"""Database files that only their owner may read: they hold jobs, costs and digests of tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600
OTHERS = 0o077
COMPANIONS = ("-wal", "-shm")


def make_private(path: Path, *, create: bool) -> None:
    """Take the rights of group and others from the file and its companions.

    SQLite makes the companions with the rights of the file, so one that is missing and is to be
    created is made here first. What cannot be changed or made is left for SQLite to report.
    """
    if create:
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
    for each in (path, *(path.with_name(path.name + suffix) for suffix in COMPANIONS)):
        with suppress(OSError):
            mode = each.stat().st_mode
            if mode & OTHERS:
                each.chmod(mode & ~OTHERS & 0o777)
