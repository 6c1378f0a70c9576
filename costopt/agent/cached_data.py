"""The job's cache on this node: what every start needs, such as base weights.

FOLDER/<hash of the address>/ holds a ``DataCache`` of each; FOLDER/named/ what the job file names.
It outlives the trainer and the agent: what is whole is never fetched again.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from costopt.agent.data import INDEX, DataCache, DataObject, list_data_objects
from costopt.domain.cached_data import PARALLEL_FETCHES
from costopt.domain.errors import CostoptError, StoreError
from costopt.domain.object_store import ObjectStore
from costopt.protocol.messages import CacheReport, CacheSource
from costopt.store import open_store
from costopt.store.atomic_file import write_error_hint

RETRY_S = 5.0
MAX_FAILURES = 5
"""In a row without a new object, before the start has failed."""


class CacheFetch:
    """Fetches ``sources`` into ``folder`` in threads, each object whole and verified or not at all.

    ``message`` is its progress; ``failure`` is why the cache is unavailable, None while it may be;
    ``report`` is what it took, None until all is there.
    """

    def __init__(self, sources: tuple[CacheSource, ...], folder: Path) -> None:
        self.sources = sources
        self.directory = folder / "named"
        self.message = "fetching the cache"
        self.failure: str | None = None
        self.report: CacheReport | None = None
        self._folder = folder
        self._closed = threading.Event()
        self._counted = threading.Lock()
        self._fetched_bytes = 0
        threading.Thread(target=self._run, name="cache", daemon=True).start()

    def close(self) -> None:
        """Stop before the next object."""
        self._closed.set()

    def _run(self) -> None:
        began_at, failures, before = time.monotonic(), 0, -1
        while not self._closed.is_set():
            try:
                total = sum(self._fetch(*source) for source in self.sources)
            except (CostoptError, OSError) as error:
                failures = failures + 1 if self._fetched_bytes == before else 1
                before, self.message = self._fetched_bytes, f"cannot fetch the cache: {error}"
                if failures >= MAX_FAILURES:
                    self.failure = self.message
                    return
                self._closed.wait(RETRY_S)
                continue
            if not self._closed.is_set():
                took_s = time.monotonic() - began_at
                fetched = self._fetched_bytes
                self.report = CacheReport(fetched, max(0, total - fetched), took_s)
                return

    def _fetch(self, uri: str, to: str, sha256: str, in_image: bool) -> int:
        """Return the bytes that are at ``to`` now, 0 if the image brought them."""
        if in_image and Path(to).exists():
            return 0
        store = open_store(uri)
        _check_index(store, uri, sha256)
        objects = list_data_objects(store)
        if not objects:
            raise StoreError(f"{uri} holds no objects", hint="check cache.uri", code="missing")
        place = self._folder / hashlib.sha256(f"{uri} {sha256}".encode()).hexdigest()[:16]
        cache = DataCache(store, place, sys.maxsize)
        self.message = f"fetching {len(objects)} objects from {uri}"
        sizes: list[int] = []
        with ThreadPoolExecutor(PARALLEL_FETCHES) as pool:
            for size_bytes in pool.map(lambda each: self._object(cache, each), objects):
                sizes.append(size_bytes)
                self.message = f"fetched {len(sizes)} of {len(objects)} objects from {uri}"
        if not self._closed.is_set():
            link(cache.objects, self.directory / to)
        return sum(sizes)

    def _object(self, cache: DataCache, wanted: DataObject) -> int:
        if self._closed.is_set():
            return 0
        held = cache.holds(wanted)
        size_bytes = cache.fetch(wanted).stat().st_size
        if not held:
            with self._counted:
                self._fetched_bytes += size_bytes
        return size_bytes


def _check_index(store: ObjectStore, uri: str, sha256: str) -> None:
    if not sha256:
        return
    index = store.get(INDEX)
    found = None if index is None else hashlib.sha256(index).hexdigest()
    if found != sha256:
        raise StoreError(
            f"the SHA-256 of {uri}/{INDEX} is {found or 'unknown: it is missing'}, not {sha256}",
            hint="correct cache.sha256, or write the index again",
            code="unreadable",
        )


def link(target: Path, place: Path) -> None:
    """Let ``place`` lead to ``target``, atomically; another link there is replaced.

    Raise StoreError if that is impossible, or if something else is there.
    """
    new = place.with_name(f".{place.name}.{threading.get_ident()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_symlink():
            raise StoreError(
                f"{place} exists on the node and is not the job's cache",
                hint="choose another path in cache.to",
                code="unwritable",
            )
        new.unlink(missing_ok=True)
        new.symlink_to(target.absolute())
        new.replace(place)
    except OSError as error:
        raise StoreError(
            f"cannot link {place}: {error.strerror}", hint=write_error_hint(error)
        ) from error
