"""Atomic writes to a local file system that survive a power failure."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

Buffer = bytes | bytearray | memoryview
PIECE_BYTES = 1 << 20
BLOCK_BYTES = 4096
MIN_DIRECT_BYTES = 8 << 20
"""Pieces from this size on are not copied to the page cache, which takes time and memory."""

REMEDIES = {
    errno.ENOSPC: "free space on the file system, or choose another place",
    errno.EDQUOT: "the disk quota is used up: free space, or choose another place",
    errno.EFBIG: "the process may not write files this large: raise its file size limit",
    errno.EINVAL: "see what the job's command writes there, and remove it",
    errno.ELOOP: "see what the job's command writes there, and remove it",
    errno.EACCES: "give this user write permission, or choose another place",
    errno.EPERM: "the folder refuses changes: lift its protection, or choose another place",
    errno.EROFS: "the file system is mounted read-only: remount it, or choose another place",
}
DEFAULT_REMEDY = "see that the folder exists, can be written and has space"


def write_error_hint(error: OSError) -> str:
    """Return what a user can do about a failed write."""
    return REMEDIES.get(error.errno or 0, DEFAULT_REMEDY)


def fsync_directory(folder: Path) -> None:
    """Make the names in ``folder`` durable: a power failure may lose a rename without this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Write or replace ``path``: a reader sees the old bytes or the new. Raises OSError."""
    write_chunks_atomic(path, (data,))


def write_if_absent(path: Path, data: bytes) -> bool:
    """Write ``path`` unless it exists, and return whether it was written. Raises OSError.

    A hard link fails where the name is taken, so of many writers exactly one wins, with whole
    bytes; with O_EXCL alone, a reader could see the file while it is still being written.
    """
    temporary = _write_beside(path, (data,))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)
    return True


def copy_atomic(source: Path, path: Path) -> None:
    """Write or replace ``path`` with the bytes of ``source``, in chunks. Raises OSError."""
    with source.open("rb") as file:
        write_chunks_atomic(path, iter(lambda: file.read(PIECE_BYTES), b""))


def write_chunks_atomic(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write as ``write_atomic``, from chunks that need not fit into memory together."""
    temporary = _write_beside(path, pieces)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def replace_nondurable(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace a file atomically but not durably: for a status that a machine crash invalidates.

    With ``private``, only this user may read it.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.touch(0o600 if private else 0o666)
    temporary.write_bytes(data)
    temporary.replace(path)


def _write_beside(path: Path, pieces: Iterable[Buffer]) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            for piece in pieces:
                data = memoryview(piece)
                done = _write_direct(file.fileno(), data) if len(data) >= MIN_DIRECT_BYTES else 0
                while done < len(data):
                    done += file.write(data[done:])
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _write_direct(descriptor: int, data: memoryview) -> int:
    """Write whole blocks with O_DIRECT if the file system and their place in memory allow it.

    Return how many bytes were written. Raises OSError.
    """
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | getattr(os, "O_DIRECT", 0))
        return os.write(descriptor, data[: len(data) // BLOCK_BYTES * BLOCK_BYTES])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return 0
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
