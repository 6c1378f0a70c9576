"""A folder as an object store, whose files are opened without blocking and without leaving it.

Others may write to the folder. A symbolic link is never followed, a pipe without a writer is not
waited for, and only a regular file is read. The functions raise OSError; for a missing file or
folder FileNotFoundError or NotADirectoryError.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import heapq
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from costopt.domain.errors import StoreError
from costopt.domain.object_store import VersionedObject
from costopt.store import atomic_file
from costopt.store.address import is_key_part, validate_key

MAX_ENTRIES = 1_000_000
"""Maximum files that one listing visits, so that one job's files delay no other job."""
MAX_DEPTH = 32
"""Maximum depth of folders; keys of ours have at most half as many parts."""


class FileStore:
    """The ObjectStore port over a local or shared folder, to which others may write anything.

    ``root`` may be a symbolic link; below it none is followed, and only regular files are read.
    Hidden files are unfinished writes and locks, which no key can name. Every put is atomic and
    durable; tags are digests of the bytes. Raises StoreError naming the path and what to do.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        with self._place("write", key, create=True) as place:
            atomic_file.write_atomic(place, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; return whether it was written. One of many writers wins."""
        with self._place("write", key, create=True) as place:
            if os.path.lexists(place):
                return False
            return atomic_file.write_if_absent(place, data)

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, or None where the key is missing."""
        try:
            with self._place("read", key) as place, read_plain(place) as file:
                data = file.read() if max_bytes is None else file.read(max_bytes + 1)
                size_bytes = max(len(data), os.fstat(file.fileno()).st_size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if max_bytes is not None and size_bytes > max_bytes:
            raise object_too_large_error(key, str(self.root), size_bytes, max_bytes)
        return data

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        """Return the bytes from ``start`` up to ``end``, or None where the key is missing."""
        try:
            with self._place("read", key) as place, read_plain(place) as file:
                file.seek(start)
                data = file.read(end - start)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(data) != end - start:
            raise object_too_short_error(key, str(self.root), start + len(data), end)
        return data

    def fill(self, key: str, wanted: Iterable[tuple[int, Sequence[memoryview]]]) -> Iterator[None]:
        """Fill memory with what begins at each place of an object; yield each time. A piece has at
        most 1,024 parts of memory. For a missing object, raises as ``open`` does.
        """
        with self._place("read", key) as place, read_plain(place) as file:
            for start, into in wanted:
                end = start + sum(map(len, into))
                read_bytes = os.preadv(file.fileno(), into, start)
                if start + read_bytes != end:
                    raise object_too_short_error(key, str(self.root), start + read_bytes, end)
                yield

    def get_tagged(self, key: str) -> VersionedObject | None:
        """Return the bytes with their digest, or None where the key is missing."""
        data = self.get(key)
        return None if data is None else VersionedObject(data, _digest(data))

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds the object that ``tag`` is of; None: if it is missing."""
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
        """Write the bytes to ``path``, whole or not at all; return False if the key is missing."""
        try:
            with self._place("read", key) as place, read_plain(place) as file:
                self._copy_out(file, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Return keys with ``prefix`` that sort after ``after``, sorted; the first ``most``."""
        folder = prefix.rpartition("/")[0]
        parts = validate_key(folder) if folder else ()
        wanted = (key for key in self._below(parts) if key.startswith(prefix) and key > after)
        try:
            return sorted(wanted) if most is None else heapq.nsmallest(most, wanted)
        except OSError as error:
            raise _refused("list", self.root.joinpath(*parts), error) from error

    def delete(self, key: str) -> None:
        """Remove the object; a missing key is not an error."""
        try:
            with self._place("delete", key) as place:
                place.unlink(missing_ok=True)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _below(self, parts: Sequence[str]) -> Iterator[str]:
        """Yield files with valid names of keys; others were not put here. Raises OSError."""
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
        """Hold the folder of a key open, and return the key's path. For reads, raises
        FileNotFoundError or NotADirectoryError if missing; every other OSError as StoreError."""
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
    # The lock file remains: removing it would let two writers lock two files of one name.
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
    """Hold the folder ``parts`` below ``root`` open; return a path to it that cannot be redirected.

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
    """Return whether ``path`` is a regular file, and not a link to one."""
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


def object_too_large_error(key: str, where: str, size_bytes: int, max_bytes: int) -> StoreError:
    """Return the error of an object that is too large for any of ours, and so is not read."""
    return StoreError(
        f"{key!r} in {where} has {size_bytes:,} bytes or more: at most {max_bytes:,} are read",
        hint="see what the job's command writes there, and remove it",
        code="too_large",
    )


def object_too_short_error(key: str, where: str, size_bytes: int, end: int) -> StoreError:
    """Return the error of an object that ends before the range that was asked for."""
    return StoreError(
        f"{key!r} in {where} ends at byte {size_bytes:,} or before, not at {end:,}",
        hint="the object was replaced or cut short: use another copy of it",
        code="too_short",
    )


def file_size_bytes(path: Path) -> int:
    """Return the size in bytes of a file to upload. Raises StoreError where it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="see that the file is there"
        ) from error
