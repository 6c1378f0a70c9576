"""Brings the job's data to the node's disk beside the agent's loop."""

from __future__ import annotations

import threading
from pathlib import Path

from costopt.agent.data_cache import DataCache
from costopt.agent.data_index import list_data_objects
from costopt.domain.errors import CostoptError
from costopt.store import open_store

RETRY_S = 5.0


class Prefetch:
    """``done`` once all is here that fits; ``message`` says how far it is, or what is wrong.

    A store that refuses is asked again: data are not there for good only where the job says so.
    """

    def __init__(self, uri: str, folder: Path, most_bytes: int) -> None:
        self.uri = uri
        self.message = f"fetching data from {uri}"
        self.directory = folder / "objects"
        self._folder = folder
        self._most_bytes = most_bytes
        self._done = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="prefetch", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether training may begin."""
        return self._done.is_set()

    def close(self) -> None:
        """Fetch no further object."""
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
        cache = DataCache(store, self._folder, self._most_bytes)
        objects = list_data_objects(store)
        for number, wanted in enumerate(objects, start=1):
            if self._closed.is_set():
                return
            known = wanted.size_bytes or 0
            if not cache.holds(wanted.key) and cache.size_bytes() + known > self._most_bytes:
                break
            cache.fetch(wanted)
            self.message = f"fetched {number} of {len(objects)} objects from {self.uri}"
        self._done.set()
