"""A folder as an object store.

A folder as an object store.

Opens files below a folder to which others write, without waiting and without leaving it.

A symbolic link is never followed, a pipe without a writer is not waited for, and only a regular
file is read. Everything raises OSError; a missing file or folder FileNotFoundError or
NotADirectoryError.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import heapq
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from costopt.domain.errors import StoreError
from costopt.domain.ports import VersionedObject
from costopt.store import atomic_file
from costopt.store.address import is_key_part, validate_key

MAX_ENTRIES = 1_000_000
"""Files that one listing looks at: what a job's command writes holds up no other job."""
MAX_DEPTH = 32
"""Folders in folders; keys of ours have no more than half as many parts."""


class FileStore:
    """The ObjectStore port over a local or shared folder, to which others may write anything.

    ``root`` may be a symbolic link; below it none is followed, and only regular files are read.
    Hidden files are writes under way and locks, which no key can name. Every put is atomic and
    durable; tags are digests of the bytes. Raises StoreError naming the path and what to do.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        with self._place("write", key, create=True) as place:
            atomic_file.write_atomic(place, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; False where it does. One winner among many writers."""
        with self._place("write", key, create=True) as place:
            if os.path.lexists(place):
                return False
            return atomic_file.write_if_absent(place, data)

    def get(self, key: str, most_bytes: int | None = None) -> bytes | None:
        """The bytes, or None where the key is missing."""
        try:
            with self._place("read", key) as place, read_plain(place) as file:
                data = file.read() if most_bytes is None else file.read(most_bytes + 1)
                size_bytes = max(len(data), os.fstat(file.fileno()).st_size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if most_bytes is not None and size_bytes > most_bytes:
            raise object_too_large_error(key, str(self.root), size_bytes, most_bytes)
        return data

    def get_tagged(self, key: str) -> VersionedObject | None:
        """The bytes with their digest, or None where the key is missing."""
        data = self.get(key)
        return None if data is None else VersionedObject(data, _digest(data))

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds what ``tag`` was given for; None: if it is missing."""
        with (
            self._place("write", key, create=True) as place,
            _locked(place.with_name(f".{place.name}.lock")),
        ):
            found = self.get_tagged(key)
            if (None if found is None else found.tag) != tag:
                return False
            atomic_file.write_atomic(place, data)
            return True

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, durably."""
        file_size_bytes(path)
        with self._place("write", key, create=True) as place:
            atomic_file.copy_atomic(path, place)

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; False where the key is missing."""
        try:
            with self._place("read", key) as place, read_plain(place) as file:
                self._copy_out(file, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Keys that begin with ``prefix`` and come after ``after``, sorted; the first ``most``."""
        folder = prefix.rpartition("/")[0]
        parts = validate_key(folder) if folder else ()
        wanted = (key for key in self._below(parts) if key.startswith(prefix) and key > after)
        try:
            return sorted(wanted) if most is None else heapq.nsmallest(most, wanted)
        except OSError as error:
            raise _refused("list", self.root.joinpath(*parts), error) from error

    def delete(self, key: str) -> None:
        """Remove; a missing key is no error."""
        try:
            with self._place("delete", key) as place:
                place.unlink(missing_ok=True)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _below(self, parts: Sequence[str]) -> Iterator[str]:
        """Files whose names a key can have; others were not put here. Raises OSError."""
        waiting, found = [tuple(parts)], 0
        while waiting:
            folder = waiting.pop()
            for entry in self._entries(folder):
                found += 1
                if found > MAX_ENTRIES:
                    raise OSError(errno.EFBIG, f"there are more than {MAX_ENTRIES:,} files in it")
                if not is_key_part(entry.name):
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    yield "/".join((*folder, entry.name))
                elif len(folder) < MAX_DEPTH:
                    waiting.append((*folder, entry.name))

    def _entries(self, folder: Sequence[str]) -> Iterator[os.DirEntry[str]]:
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            opened_folder(self.root, folder) as place,
            os.scandir(place) as entries,
        ):
            yield from entries

    def _copy_out(self, file: BinaryIO, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            pieces = iter(lambda: file.read(atomic_file.PIECE_BYTES), b"")
            atomic_file.write_chunks_atomic(path, pieces)
        except OSError as error:
            raise _refused("write", path, error) from error

    @contextmanager
    def _place(self, verb: str, key: str, *, create: bool = False) -> Iterator[Path]:
        """The path of a key while its folder is held open. Where only read and missing, raises
        FileNotFoundError or NotADirectoryError; every other OSError inside as StoreError."""
        *above, name = validate_key(key)
        try:
            with opened_folder(self.root, above, create=create) as folder:
                yield folder / name
        except OSError as error:
            if not create and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise
            raise _refused(verb, self.root.joinpath(*above, name), error) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock file stays: to remove it would let two writers lock two files of one name.
    with os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(verb: str, path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot {verb} {path}: {error.strerror}",
        hint=atomic_file.write_error_hint(error),
        code="unwritable" if verb == "write" else "unreadable",
        subject=str(path),
    )


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


def object_too_large_error(key: str, where: str, size_bytes: int, most_bytes: int) -> StoreError:
    """Something was written that nobody of us writes, and is not read."""
    return StoreError(
        f"{key!r} in {where} has {size_bytes:,} bytes or more: at most {most_bytes:,} are read",
        hint="see what the job's command writes there, and remove it",
        code="too_large",
    )


def file_size_bytes(path: Path) -> int:
    """The size in bytes of a file that is to be put. Raises StoreError where it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="see that the file is there"
        ) from error
