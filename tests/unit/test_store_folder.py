"""A folder as an object store."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from costopt.domain.errors import StoreError
from costopt.store.folder import FileStore


def test_put_get_delete(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.get("a/b.json") is None
    store.put("a/b.json", b"1")
    store.put("a/b.json", b"2")
    assert store.get("a/b.json") == b"2"
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert store.get("a/b.json") is None


def test_keys_are_sorted_and_hide_writes_under_way(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for key in ("jobs/b/x", "jobs/a/y", "jobs/ab", "other"):
        store.put(key, b"")
    (tmp_path / "jobs" / ".ab.123.tmp").write_bytes(b"half")
    assert store.keys("jobs/a") == ["jobs/a/y", "jobs/ab"]
    assert store.keys("jobs/") == ["jobs/a/y", "jobs/ab", "jobs/b/x"]
    assert store.keys("nothing/") == []
    assert len(store.keys("")) == 4


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.hidden", "a\0b", "a/", ".", "a\nb"]
)
def test_no_key_leaves_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="is no key"):
        FileStore(tmp_path / "store").put(key, b"x")


def test_of_many_writers_one_wins_with_whole_bytes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    won: list[int] = []

    def write(number: int) -> None:
        if store.put_if_absent("one", str(number).encode() * 100_000):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("one") == str(won[0]).encode() * 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_refusal_names_the_path_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write .*file/key") as caught:
        FileStore(tmp_path / "file").put("key", b"x")
    assert caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a full file system needs root")
def test_a_full_disk_keeps_the_old_bytes(tmp_path: Path) -> None:
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)])
    if mount.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        store = FileStore(tmp_path)
        store.put("key", b"old")
        with pytest.raises(StoreError, match=r"No space left.*\n.*free space"):
            store.put("key", b"x" * 100_000)
        assert store.get("key") == b"old"
        assert store.keys("") == ["key"]
        assert [path.name for path in tmp_path.iterdir()] == ["key"]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
