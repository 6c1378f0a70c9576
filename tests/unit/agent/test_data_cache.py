"""Data on a node's disk: verified, within the bound, whatever is killed and however many read."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from costopt.agent.data import INDEX, DataCache, DataObject, Prefetch, list_data_objects
from costopt.domain.errors import StoreError
from costopt.store.folder import FileStore
from tests.support.errors import has_code


class Data:
    """Ten objects of 100 bytes in a folder, and a cache beside it."""

    def __init__(self, folder: Path, max_bytes: int = 1000) -> None:
        self.store = FileStore(folder / "store")
        self.folder = folder / "cache"
        self.cache = DataCache(self.store, self.folder, max_bytes)
        for number in range(10):
            self.store.put(f"part/{number}", bytes([number]) * 100)

    def wanted(self, number: int) -> DataObject:
        digest = hashlib.sha256(bytes([number]) * 100).hexdigest()
        return DataObject(f"part/{number}", 100, digest)

    def read(self, number: int) -> bytes:
        with self.cache.open(self.wanted(number)) as file:
            return file.read()

    def here(self) -> list[int]:
        return [n for n in range(10) if self.cache.holds(DataObject(f"part/{n}"))]


def test_an_object_is_fetched_once(tmp_path: Path) -> None:
    data = Data(tmp_path)
    assert data.read(3) == b"\3" * 100
    data.store.delete("part/3")
    assert data.read(3) == b"\3" * 100
    assert data.cache.path("part/3") == data.cache.objects / "part" / "3"
    with pytest.raises(StoreError, check=has_code("missing")):
        data.cache.fetch(DataObject("part/missing"))
    assert list((data.folder / "partial").iterdir()) == []


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    data = Data(tmp_path, max_bytes=350)
    for number in (1, 2, 3):
        data.read(number)
        os.utime(data.cache.path(f"part/{number}"), (number, number))
    data.read(1)
    data.read(4)
    assert data.here() == [1, 3, 4]
    data.read(5)
    assert data.here() == [1, 4, 5]
    assert data.cache.size_bytes() == 300


def test_what_is_open_can_be_read_though_it_is_evicted(tmp_path: Path) -> None:
    data = Data(tmp_path, max_bytes=100)
    with data.cache.open(data.wanted(1)) as file:
        data.read(2)
        assert data.here() == [2]
        assert file.read() == b"\1" * 100


def test_what_is_not_as_announced_is_refused(tmp_path: Path) -> None:
    data = Data(tmp_path)
    data.store.put("part/1", b"\7" * 100)
    with pytest.raises(StoreError, match="SHA-256"):
        data.read(1)
    data.store.put("part/1", b"\1" * 99)
    with pytest.raises(StoreError, match="it has 99 bytes, not 100"):
        data.read(1)
    assert data.here() == []
    data.store.put("part/1", b"\1" * 100)
    data.read(1)
    data.cache.path("part/1").write_bytes(b"torn")
    assert data.read(1) == b"\1" * 100, "a size that changed on disk is fetched again"


def test_what_can_never_fit_is_said(tmp_path: Path) -> None:
    data = Data(tmp_path, max_bytes=99)
    with pytest.raises(StoreError, check=has_code("too_large")):
        data.read(1)


def test_what_a_killed_fetch_announced_and_left_is_taken_back(tmp_path: Path) -> None:
    data = Data(tmp_path, max_bytes=200)
    left = data.folder / "partial" / ("0" * 32)
    left.mkdir()
    (left / "reserved").write_text("200")
    (left / ".object.1.tmp").write_bytes(b"half")
    data.read(1)
    data.read(2)
    assert data.here() == [1, 2]
    assert not left.exists()


def _read_for_ever(folder: Path, seed: int) -> None:
    data = Data.__new__(Data)
    data.cache = DataCache(FileStore(folder / "store"), folder / "cache", 350)
    draw = random.Random(seed)
    while True:
        number = draw.randrange(10)
        if data.read(number) != bytes([number]) * 100:
            (folder / "torn").touch()


def test_readers_that_are_killed_at_any_moment_leave_nothing_wrong(tmp_path: Path) -> None:
    data = Data(tmp_path, max_bytes=350)
    context = multiprocessing.get_context("fork")
    draw = random.Random(1)
    for kill in range(25):
        readers = [
            context.Process(target=_read_for_ever, args=(tmp_path, 10 * kill + n), daemon=True)
            for n in range(3)
        ]
        for reader in readers:
            reader.start()
        time.sleep(draw.uniform(0.005, 0.05))
        for reader in readers:
            assert reader.pid is not None
            os.kill(reader.pid, signal.SIGKILL)
            reader.join()
            assert reader.exitcode == -signal.SIGKILL, "it read until it was killed"
        assert data.cache.size_bytes() <= 350
    assert not (tmp_path / "torn").exists()
    assert [data.read(n) for n in range(10)] == [bytes([n]) * 100 for n in range(10)]
    assert list((data.folder / "partial").iterdir()) == []


def test_an_index_says_what_there_is_and_else_the_store_does(tmp_path: Path) -> None:
    data = Data(tmp_path)
    assert list_data_objects(data.store)[0] == DataObject("part/0")
    reported = {"objects": [{"key": "part/2", "size_bytes": 100}, {"key": "part/1"}]}
    data.store.put(INDEX, json.dumps(reported).encode())
    assert list_data_objects(data.store) == (DataObject("part/2", 100), DataObject("part/1"))
    data.store.put(INDEX, b"[]")
    with pytest.raises(StoreError, check=has_code("unreadable")):
        list_data_objects(data.store)


def test_data_are_fetched_beside_until_the_bound(tmp_path: Path) -> None:
    data = Data(tmp_path)
    reported = {"objects": [{"key": f"part/{n}", "size_bytes": 100} for n in (4, 2, 3)]}
    data.store.put(INDEX, json.dumps(reported).encode())
    prefetch = Prefetch((tmp_path / "store").as_uri(), data.folder, 250)
    deadline = time.monotonic() + 120
    while not prefetch.done:
        assert time.monotonic() < deadline, prefetch.message
        time.sleep(0.005)
    assert data.here() == [2, 4]
    assert "2 of 3 objects" in prefetch.message
