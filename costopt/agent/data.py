"""The job's data on this node's disk: a verified cache of bounded size, and its prefetch.

FOLDER/objects/<key>           whole, verified objects; the mtime is the time of the last use
FOLDER/partial/<hash of key>/  a download in progress, or one that was interrupted
FOLDER/locks/                  held (flock) to fetch or evict; the kernel unlocks on a crash

Any number of processes may use one folder. A file that is evicted while it is being read stays
readable for the process that has it open.

The data consist of the objects in the index beside them or, without an index, of all that the store
lists. ``Prefetch`` fetches them in a thread beside the agent's loop.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from costopt.domain.errors import CostoptError, StoreError
from costopt.domain.object_store import ObjectStore
from costopt.store import open_store
from costopt.store.address import validate_key
from costopt.store.atomic_file import write_error_hint

GIB = 2**30
ALL_OBJECTS = "everything"
RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class DataObject:
    """A named object; ``size_bytes`` and ``sha256`` (hex) are verified where they are known."""

    key: str
    size_bytes: int | None = None
    sha256: str | None = None


class DataCache:
    """A cache of ``store``'s objects in ``folder``, at most ``max_bytes`` of them.

    The least recently used objects are evicted first. A download counts with its announced size;
    without one, it is counted only once it is complete. Methods raise StoreError.
    """

    def __init__(self, store: ObjectStore, folder: Path, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._folder = folder
        self.objects = folder / "objects"
        with _data_errors("make a cache in", folder):
            for each in (self.objects, folder / "partial", folder / "locks"):
                each.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Return where the object is once it is cached."""
        return self.objects.joinpath(*validate_key(key))

    def open(self, wanted: DataObject) -> BinaryIO:
        """Return the object open for reading; fetch and verify it if it is not cached.

        Marks the object as used. The open file stays readable even if another process evicts it.
        """
        path = self.path(wanted.key)
        found = self._opened(path, wanted)
        if found is None:
            with self._locked(_name(wanted.key)):
                # Another process may have fetched it while this one waited for the lock.
                found = self._opened(path, wanted) or self._download(wanted, path)
        return found

    def fetch(self, wanted: DataObject) -> Path:
        """Return the object's path, fetched as by ``open``; others may evict it at any time."""
        self.open(wanted).close()
        return self.path(wanted.key)

    def holds(self, wanted: DataObject) -> bool:
        """Whether the object is cached, with the size that is known of it."""
        path = self.path(wanted.key)
        return path.is_file() and wanted.size_bytes in (None, path.stat().st_size)

    def size_bytes(self) -> int:
        """Return the total size of the complete objects."""
        return sum(size for _, size, _ in self._by_use())

    def _opened(self, path: Path, wanted: DataObject) -> BinaryIO | None:
        """Return the cached object, None if it is missing or not the requested version."""
        try:
            file = path.open("rb")
            os.utime(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("use", path, error) from error
        if wanted.size_bytes in (None, os.fstat(file.fileno()).st_size):
            return file
        file.close()
        return None

    def _download(self, wanted: DataObject, path: Path) -> BinaryIO:
        """Called with the key's lock held: a partial download found there was abandoned."""
        partial = self._folder / "partial" / _name(wanted.key)
        fresh = partial / "object"
        try:
            with _data_errors("fetch to", partial):
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                self._make_room(wanted.key, wanted.size_bytes or 0)
                (partial / RESERVED).write_text(str(wanted.size_bytes or 0))
            if not self._store.get_file(wanted.key, fresh):
                raise StoreError(
                    f"the job's data do not contain {wanted.key}",
                    hint="check the job's data.uri",
                    code="missing",
                )
            with _data_errors("fetch to", partial):
                size_bytes = _verified(wanted, fresh)
                with self._locked(ALL_OBJECTS):
                    self._evict(size_bytes, but=wanted.key)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    fresh.replace(path)
                    os.utime(path)
                    return path.open("rb")
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _make_room(self, key: str, size_bytes: int) -> None:
        with self._locked(ALL_OBJECTS):
            self._evict(size_bytes, but=key)

    def _evict(self, size_bytes: int, but: str) -> None:
        """Evict until ``size_bytes`` more fit beside the downloads of other processes."""
        if size_bytes > self._max_bytes:
            raise StoreError(
                f"{but} has {size_bytes / GIB:.3g} GiB, more than the cache in {self._folder} "
                f"may hold ({self._max_bytes / GIB:.3g} GiB)",
                hint="raise the limit of the data cache",
                code="too_large",
            )
        room = self._max_bytes - size_bytes - self._reserved_bytes(_name(but))
        kept = self._by_use()
        total = sum(size for _, size, _ in kept)
        for _, size, path in kept:
            if total <= room:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _reserved_bytes(self, but: str) -> int:
        """Return what other downloads have reserved; remove what dead processes left behind."""
        total = 0
        for partial in (self._folder / "partial").iterdir():
            if partial.name == but:
                continue
            self._clear_if_abandoned(partial)
            with suppress(OSError, ValueError):
                total += int((partial / RESERVED).read_text())
        return total

    def _clear_if_abandoned(self, partial: Path) -> None:
        """A process that downloads holds the lock; none can start one while it is held here."""
        with (self._folder / "locks" / partial.name).open("ab") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(partial, ignore_errors=True)

    def _by_use(self) -> list[tuple[float, int, Path]]:
        """Return (last use, size, path) of every complete object, the least recently used first."""
        found = []
        for path in self.objects.rglob("*"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                if path.is_file():
                    found.append((stat.st_mtime, stat.st_size, path))
        return sorted(found)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with _data_errors("lock", self._folder):
            lock = (self._folder / "locks" / name).open("ab")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _verified(wanted: DataObject, path: Path) -> int:
    """Return the file's size. Raise StoreError if size or digest are not the announced ones."""
    size_bytes = path.stat().st_size
    if wanted.size_bytes not in (None, size_bytes):
        raise _wrong(wanted, f"it has {size_bytes} bytes, not {wanted.size_bytes}")
    if wanted.sha256 is not None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != wanted.sha256.lower():
            raise _wrong(wanted, f"its SHA-256 is {digest}, not {wanted.sha256}")
    return size_bytes


def _wrong(wanted: DataObject, what: str) -> StoreError:
    return StoreError(
        f"{wanted.key} does not match the data's index: {what}",
        hint="write the object or the index again",
        code="unreadable",
    )


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@contextmanager
def _data_errors(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(verb, path, error) from error


def _refused(verb: str, path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot {verb} {path}: {error.strerror}", hint=write_error_hint(error))


INDEX = "costopt-data.json"


def list_data_objects(store: ObjectStore) -> tuple[DataObject, ...]:
    """Return the objects in the order of the index, {"objects": [{"key", "size_bytes", "sha256"},
    …]}.

    Without an index, return every key, with size and digest unknown. Raise StoreError if the store
    does not answer or the index is malformed.
    """
    index = store.get(INDEX)
    if index is None:
        return tuple(DataObject(key) for key in store.keys(""))
    try:
        return tuple(
            DataObject(str(o["key"]), o.get("size_bytes"), o.get("sha256"))
            for o in json.loads(index)["objects"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"the data's index {INDEX} cannot be read: {error}",
            hint='write {"objects": [{"key": …, "size_bytes": …, "sha256": …}]}',
            code="unreadable",
        ) from error


RETRY_S = 5.0


class Prefetch:
    """Fetches the data in a thread; ``message`` is its progress or the error.

    ``done`` becomes true once everything that fits is cached. A store that refuses is retried: data
    that are missing now may still be uploaded.
    """

    def __init__(self, uri: str, folder: Path, max_bytes: int) -> None:
        self.uri = uri
        self.message = f"fetching data from {uri}"
        self.directory = folder / "objects"
        self._folder = folder
        self._max_bytes = max_bytes
        self._done = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="prefetch", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether training may begin."""
        return self._done.is_set()

    def close(self) -> None:
        """Stop before the next object."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set() and not self.done:
            try:
                self._fetch_all()
            except CostoptError as error:
                self.message = str(error)
                self._closed.wait(RETRY_S)

    def _fetch_all(self) -> None:
        store = open_store(self.uri)
        cache = DataCache(store, self._folder, self._max_bytes)
        objects = list_data_objects(store)
        for number, wanted in enumerate(objects, start=1):
            if self._closed.is_set():
                return
            known = wanted.size_bytes or 0
            if not cache.holds(wanted) and cache.size_bytes() + known > self._max_bytes:
                break
            cache.fetch(wanted)
            self.message = f"fetched {number} of {len(objects)} objects from {self.uri}"
        self._done.set()
