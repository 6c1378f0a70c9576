"""A folder as an object store."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from costopt.domain.errors import StoreError
from costopt.store import atomic_file, folder
from costopt.store.folder import FileStore
from tests.support.errors import has_code


def test_writes_under_way_are_not_listed_and_leave_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.put_if_absent("jobs/a", b"1")
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["a"]
    (tmp_path / "jobs" / ".ab.123.tmp").write_bytes(b"half")
    assert store.keys("") == ["jobs/a"]


def test_a_refusal_names_the_path_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, check=has_code("unwritable")) as caught:
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


MAX_BYTES = 1 << 16


def _plant(place: Path, kind: str, outside: Path) -> Iterator[None]:
    """Something that is not a file of ours, at ``place``."""
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            (place / "in").mkdir(parents=True)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made, chdir(place.parent):
                made.bind(place.name)
                yield
            return
        case "link to a file outside":
            place.symlink_to(outside / "secret")
        case "link to a file inside":
            (place.parent / "other").write_bytes(b"other")
            place.symlink_to("other")
        case "link to nothing":
            place.symlink_to(outside / "nothing")
        case "link to a device":
            place.symlink_to("/dev/zero")
        case "huge file":
            with place.open("wb") as file:
                file.truncate(1 << 42)
    yield


KINDS = (
    "pipe", "folder", "socket", "link to a file outside", "link to a file inside",
    "link to nothing", "link to a device", "huge file",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_file_of_ours_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    store, outside = FileStore(tmp_path / "store"), tmp_path / "outside"
    store.put("jobs/a/other", b"")
    with contextmanager(_plant)(tmp_path / "store" / "jobs" / "a" / "key", kind, outside):
        with pytest.raises(StoreError) as caught:
            store.get("jobs/a/key", MAX_BYTES)
        assert caught.value.hint
        if kind != "huge file":
            with pytest.raises(StoreError):
                store.get_file("jobs/a/key", tmp_path / "copy")
            with pytest.raises(StoreError):
                store.replace("jobs/a/key", b"x", None)
        assert not store.put_if_absent("jobs/a/key", b"x")
        assert set(store.keys("jobs/")) <= {"jobs/a/key", "jobs/a/other", "jobs/a/key/in"}
        if kind != "folder":
            store.put("jobs/a/key", b"ours")
            assert store.get("jobs/a/key") == b"ours"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_linked_folder_is_neither_read_nor_written(tmp_path: Path) -> None:
    store, outside = FileStore(tmp_path / "store"), tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    store.put("jobs/a/key", b"1")
    (tmp_path / "store" / "jobs" / "b").symlink_to(outside)
    for ask in (
        lambda: store.get("jobs/b/key"),
        lambda: store.put("jobs/b/key", b"x"),
        lambda: store.put_if_absent("jobs/b/new", b"x"),
        lambda: store.replace("jobs/b/new", b"x", None),
        lambda: store.delete("jobs/b/key"),
        lambda: store.keys("jobs/b/"),
    ):
        with pytest.raises(StoreError):
            ask()
    assert store.keys("jobs/") == ["jobs/a/key", "jobs/b"]
    assert [path.name for path in outside.iterdir()] == ["key"]
    (tmp_path / "link").symlink_to("store")
    assert FileStore(tmp_path / "link").get("jobs/a/key") == b"1"


def test_a_pipe_in_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".head.lock")
    with pytest.raises(StoreError):
        FileStore(tmp_path).replace("head", b"x", None)


def test_names_that_no_key_has_are_not_listed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put("jobs/a", b"")
    for name in (b"\xff\xfe", b"two\nlines", b"a b", "\u202ename".encode()):
        Path(os.fsdecode(bytes(tmp_path / "jobs") + b"/" + name)).write_bytes(b"")
    assert store.keys("jobs/") == ["jobs/a"]


def test_a_listing_ends_however_much_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    deep = tmp_path.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"")
    assert store.keys("") == []
    monkeypatch.setattr(folder, "MAX_ENTRIES", 3)
    for number in range(3):
        store.put(f"jobs/{number}", b"")
    with pytest.raises(StoreError):
        store.keys("", most=2)


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("more", [-1, 0, 4095, 4096, 4097])
def test_large_objects_have_the_same_bytes_from_any_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int, more: int
) -> None:
    """Whole blocks go past the page cache from memory that is aligned; the rest does not."""
    monkeypatch.setattr(atomic_file, "MIN_DIRECT_BYTES", 1 << 20)
    size = (1 << 20) + more
    memory = mmap.mmap(-1, 2 << 20)
    memory.write(random.Random(size).randbytes(2 << 20))
    memory.flush()
    data = memoryview(memory)[begin : begin + size]
    FileStore(tmp_path).put("tensors.bin", data)  # type: ignore[arg-type]
    assert (tmp_path / "tensors.bin").read_bytes() == bytes(data)
    atomic_file.write_chunks_atomic(tmp_path / "two", (data, b"x", data))
    assert (tmp_path / "two").read_bytes() == bytes(data) + b"x" + bytes(data)


def test_what_a_direct_write_leaves_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_file, "MIN_DIRECT_BYTES", 1 << 20)
    write, flags = os.write, list[bool]()

    def short(descriptor: int, data: memoryview) -> int:
        flags.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT))
        return write(descriptor, data[: 1 << 19])

    monkeypatch.setattr(os, "write", short)
    data = random.Random(3).randbytes(3 << 20)
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    atomic_file.write_atomic(tmp_path / "short", memoryview(memory))  # type: ignore[arg-type]
    assert (tmp_path / "short").read_bytes() == data
    assert all(flags)


def test_a_full_disk_is_an_error_also_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError):
        FileStore(tmp_path).put("tensors.bin", bytes(9 << 20))
    assert list(tmp_path.iterdir()) == []
