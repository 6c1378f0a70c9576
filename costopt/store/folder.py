"""A folder as an object store."""

from __future__ import annotations

import fcntl
import hashlib
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.domain.ports import Tagged
from costopt.store import durable
from costopt.store.key import checked_parts
from costopt.store.refusal import checked_size_bytes, too_large


class FileStore:
    """The ObjectStore port over a local or shared folder.

    Hidden files are writes under way and locks, which no key can name. Every put is atomic and
    durable; tags are digests of the bytes. Raises StoreError naming the path and what to do.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.write_durably(path, data)
        except OSError as error:
            raise _refused("write", path, error) from error

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; False where it does. One winner among many writers."""
        path = self._path(key)
        try:
            if path.exists():
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            return durable.write_durably_if_absent(path, data)
        except OSError as error:
            raise _refused("write", path, error) from error

    def get(self, key: str, most_bytes: int | None = None) -> bytes | None:
        """The bytes, or None where the key is missing."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                data = file.read() if most_bytes is None else file.read(most_bytes + 1)
                size_bytes = max(len(data), os.fstat(file.fileno()).st_size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("read", path, error) from error
        if most_bytes is not None and size_bytes > most_bytes:
            raise too_large(key, str(self.root), size_bytes, most_bytes)
        return data

    def get_tagged(self, key: str) -> Tagged | None:
        """The bytes with their digest, or None where the key is missing."""
        data = self.get(key)
        return None if data is None else Tagged(data, _digest(data))

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds what ``tag`` was given for; None: if it is missing."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_name(f".{path.name}.lock")):
                found = self.get_tagged(key)
                if (None if found is None else found.tag) != tag:
                    return False
                durable.write_durably(path, data)
                return True
        except OSError as error:
            raise _refused("write", path, error) from error

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, durably."""
        place = self._path(key)
        checked_size_bytes(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            durable.copy_durably(path, place)
        except OSError as error:
            raise _refused("write", place, error) from error

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; False where the key is missing."""
        place = self._path(key)
        if not place.is_file():
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.copy_durably(place, path)
        except OSError as error:
            raise _refused("write", path, error) from error
        return True

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Keys that begin with ``prefix`` and come after ``after``, sorted; the first ``most``."""
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self.root
        wanted = (key for key in self._below(start) if key.startswith(prefix) and key > after)
        try:
            return sorted(wanted) if most is None else heapq.nsmallest(most, wanted)
        except OSError as error:
            raise _refused("list", start, error) from error

    def delete(self, key: str) -> None:
        """Remove; a missing key is no error."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise _refused("delete", path, error) from error

    def _below(self, start: Path) -> Iterator[str]:
        for folder, _, names in os.walk(start, onerror=_unless_missing):
            above = Path(folder).relative_to(self.root).as_posix()
            lead = "" if above == "." else f"{above}/"
            yield from (lead + name for name in names if not name.startswith("."))

    def _path(self, key: str) -> Path:
        return self.root.joinpath(*checked_parts(key))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock file stays: to remove it would let two writers lock two files of one name.
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(verb: str, path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot {verb} {path}: {error.strerror}", hint=durable.remedy(error))
