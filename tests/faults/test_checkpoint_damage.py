"""Bits that flip, files cut short, and places that refuse to be written."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from costopt.checkpoint.manifest import decode_with_digest, encode_with_digest
from costopt.domain.errors import CheckpointError
from costopt.train.checkpointer import Checkpointer
from costopt.train.save_queue import FailedSave
from tests.support.errors import has_code

NEWEST = "step-000000002.0.0"


def save_two(folder: Path) -> Checkpointer:
    checkpointer = Checkpointer(folder)
    for step in (1, 2):
        checkpointer.save(step, {"step": step, "weights": torch.arange(500.0) * step})
    return checkpointer


def newest_step(folder: Path) -> int | None:
    restored = Checkpointer(folder).restore()
    return None if restored is None else int(restored.state["step"])


@pytest.mark.parametrize("name", ["objects.pt", "tensors-00000.bin", "manifest.json"])
def test_every_bit_flip_is_caught(tmp_path: Path, name: str) -> None:
    save_two(tmp_path)
    path = tmp_path / NEWEST / name
    whole = path.read_bytes()
    draw = random.Random(9)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        checkpointer = Checkpointer(tmp_path)
        restored = checkpointer.restore()
        assert restored is not None
        assert restored.state["step"] == 1
        assert [refused.name for refused in checkpointer.refused] == [NEWEST]


@pytest.mark.parametrize("name", ["objects.pt", "tensors-00000.bin", "manifest.json"])
def test_every_truncation_is_caught(tmp_path: Path, name: str) -> None:
    save_two(tmp_path)
    path = tmp_path / NEWEST / name
    whole = path.read_bytes()
    for length in (0, 1, 64, 65, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert newest_step(tmp_path) == 1
    path.write_bytes(whole + b"x")
    assert newest_step(tmp_path) == 1
    path.unlink()
    assert newest_step(tmp_path) == 1


def test_a_damaged_head_loses_nothing(tmp_path: Path) -> None:
    checkpointer = save_two(tmp_path)
    head = tmp_path / "HEAD"
    whole = head.read_bytes()
    draw = random.Random(3)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        head.write_bytes(damaged)
        reader = Checkpointer(tmp_path)
        restored = reader.restore()
        assert restored is not None
        assert restored.name == NEWEST
        assert [refused.name for refused in reader.refused] == ["HEAD"]
    checkpointer.save(3, {"step": 3})
    assert newest_step(tmp_path) == 3


def test_a_checkpoint_under_another_name_is_refused(tmp_path: Path) -> None:
    save_two(tmp_path)
    shutil.copytree(tmp_path / "step-000000001.0.0", tmp_path / "step-000000009.0.0")
    shutil.copytree(tmp_path / "step-000000001.0.0", tmp_path / "step-000000001.0.9")
    (tmp_path / "HEAD").unlink()
    reader = Checkpointer(tmp_path)
    restored = reader.restore()
    assert restored is not None
    assert restored.name == NEWEST
    assert [refused.name for refused in reader.refused] == ["step-000000009.0.0"]
    with pytest.raises(CheckpointError, match="that of another checkpoint"):
        reader.load("step-000000001.0.9")


def test_a_directory_is_never_used_twice(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    names = {checkpointer.save(5, {"step": 5}).name for _ in range(3)}
    assert len(names) == 3


@pytest.mark.parametrize("schema", [None, 1, 99])
def test_a_manifest_of_another_schema_is_refused(tmp_path: Path, schema: int | None) -> None:
    save_two(tmp_path)
    path = tmp_path / NEWEST / "manifest.json"
    fields = decode_with_digest(path.read_bytes(), "manifest")
    path.write_bytes(encode_with_digest({**fields, "schema": schema}))
    reader = Checkpointer(tmp_path)
    restored = reader.restore()
    assert restored is not None
    assert restored.manifest.step == 1
    assert [refused.name for refused in reader.refused] == [NEWEST]


@contextmanager
def file_size_limit(process: int, size_bytes: int) -> Iterator[None]:
    """Writes beyond the limit fail with EFBIG: a full disk that needs no privilege."""
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A tiny file system that can really be full; skips where it cannot be mounted."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs privileges that are missing here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_that_may_not_grow_fails_aloud(tmp_path: Path) -> None:
    checkpointer = save_two(tmp_path)
    assert checkpointer.writer_pid is not None
    with (
        file_size_limit(checkpointer.writer_pid, 100_000),
        pytest.raises(CheckpointError, match=r"tensors-00000\.bin.*File too large") as caught,
    ):
        checkpointer.save(3, {"step": 3, "weights": torch.zeros(100_000)})
    assert caught.value.hint is not None
    assert newest_step(tmp_path) == 2
    assert not (tmp_path / "step-000000003.0.0").exists()


def test_memory_that_is_unavailable_fails_aloud(tmp_path: Path) -> None:
    checkpointer = save_two(tmp_path)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with (
            file_size_limit(os.getpid(), 3 << 20),
            pytest.raises(CheckpointError, check=has_code("no_memory")),
        ):
            checkpointer.begin(3, {"weights": torch.zeros(1 << 20)})
    finally:
        signal.signal(signal.SIGXFSZ, before)
    checkpointer.save(4, {"step": 4, "weights": torch.zeros(1 << 20)})
    assert newest_step(tmp_path) == 4


def test_a_full_disk_fails_aloud_and_keeps_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "256k"):
        checkpointer = save_two(folder)
        for _ in range(3):
            with pytest.raises(CheckpointError, match="No space left") as caught:
                checkpointer.save(3, {"step": 3, "weights": torch.zeros(100_000)})
        assert "free space" in str(caught.value)
        assert checkpointer.begin(3, {"step": 3, "weights": torch.zeros(100_000)})
        (outcome,) = checkpointer.wait()
        assert isinstance(outcome, FailedSave)
        assert (outcome.step, "No space left" in outcome.error.message) == (3, True)
        assert newest_step(folder) == 2
        checkpointer.save(4, {"step": 4})
        assert newest_step(folder) == 4


def test_a_read_only_place_fails_aloud(tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    with mounted(folder, "1m"):
        checkpointer = save_two(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(CheckpointError, match="Read-only file system"):
            checkpointer.save(3, {"step": 3})
        assert newest_step(folder) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_fails_aloud(tmp_path: Path) -> None:
    checkpointer = save_two(tmp_path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="Permission denied"):
            checkpointer.save(3, {"step": 3})
    finally:
        tmp_path.chmod(0o700)
    assert newest_step(tmp_path) == 2


def test_unsupported_places_are_refused() -> None:
    with pytest.raises(CheckpointError, match="ftp://"):
        Checkpointer("ftp://bucket/prefix")


def test_objects_that_could_not_be_loaded_are_refused_when_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, check=has_code("unsafe_objects")):
        Checkpointer(tmp_path).save(1, {"path": Path("x")})
    assert Checkpointer(tmp_path).restore() is None


def test_a_manifest_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTOPT_CODE_REVISION", "abc")
    monkeypatch.setenv("COSTOPT_DATA_REVISION", "dvc:1")
    monkeypatch.setenv("COSTOPT_POLICY", "greenest")
    Checkpointer(tmp_path).save(1, {"step": 1}, world_size=4, labels={"loss": "2.5"})
    restored = Checkpointer(tmp_path).restore()
    assert restored is not None
    manifest = restored.manifest
    assert (manifest.world_size, manifest.labels) == (4, (("loss", "2.5"),))
    assert asdict(manifest.origin) == {
        "torch_version": str(torch.__version__),
        "code_revision": "abc",
        "data_revision": "dvc:1",
        "policy": "greenest",
    }
