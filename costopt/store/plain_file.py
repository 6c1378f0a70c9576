"""Opens files below a folder to which others write, without waiting and without leaving it.

A symbolic link is never followed, a pipe without a writer is not waited for, and only a regular
file is read. Everything raises OSError; a missing file or folder FileNotFoundError or
NotADirectoryError.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def opened_folder(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[Path]:
    """Hold the folder ``parts`` below ``root`` open; give a path to it that no one can redirect.

    ``root`` itself may be a symbolic link.
    """
    if create:
        root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            below = _enter(descriptor, part, create=create)
            os.close(descriptor)
            descriptor = below
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of the regular file at ``path``."""
    descriptor = os.open(path, flags | _FILE, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_plain(path: Path) -> BinaryIO:
    """Return the regular file at ``path``, open for reading."""
    return os.fdopen(open_plain(path), "rb")


def is_plain(path: Path) -> bool:
    """Whether a regular file, and not a link to one, lies at ``path``."""
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def _enter(folder: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "it is a symbolic link", name) from None
        raise
