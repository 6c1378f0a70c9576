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
from pathlib import Path

import pytest
import torch

from costopt.domain.errors import CheckpointError
from costopt.train import Checkpointer
from costopt.train.attach import attach


def save_two(folder: Path) -> Checkpointer:
    checkpointer = Checkpointer(folder)
    for step in (1, 2):
        checkpointer.save(step, {"step": step, "weights": torch.arange(500.0) * step})
    return checkpointer


def newest_step(folder: Path) -> int | None:
    restored = Checkpointer(folder).restore()
    return None if restored is None else int(restored.state["step"])


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_every_bit_flip_is_caught(tmp_path: Path, name: str) -> None:
    save_two(tmp_path)
    path = tmp_path / "step-000000002.0.0" / name
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
        assert [refused.name for refused in checkpointer.refused] == ["step-000000002.0.0"]


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_every_truncation_is_caught(tmp_path: Path, name: str) -> None:
    save_two(tmp_path)
    path = tmp_path / "step-000000002.0.0" / name
    whole = path.read_bytes()
    for length in (0, 1, 64, 65, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert newest_step(tmp_path) == 1
    path.write_bytes(whole + b"x")
    assert newest_step(tmp_path) == 1
    path.unlink()
    assert newest_step(tmp_path) == 1


def test_a_checkpoint_under_another_name_is_refused(tmp_path: Path) -> None:
    save_two(tmp_path)
    shutil.copytree(tmp_path / "step-000000001.0.0", tmp_path / "step-000000009.0.0")
    assert newest_step(tmp_path) == 2


def test_a_directory_is_never_used_twice(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    names = {checkpointer.save(5, {"step": 5}).name for _ in range(3)}
    assert len(names) == 3


def test_a_later_generation_outranks_and_is_taken_over(tmp_path: Path) -> None:
    Checkpointer(tmp_path, generation=3).save(10, {"step": 10})
    Checkpointer(tmp_path, generation=2).save(99, {"step": 99})
    late = Checkpointer(tmp_path, generation=1)
    restored = late.restore()
    assert restored is not None
    assert restored.state["step"] == 10
    late.save(11, {"step": 11})
    assert newest_step(tmp_path) == 11


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Writes beyond the limit fail with EFBIG: a full disk that needs no privilege."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, action)


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
    with (
        file_size_limit(100_000),
        pytest.raises(CheckpointError, match=r"state\.pt.*File too large") as caught,
    ):
        checkpointer.save(3, {"step": 3, "weights": torch.zeros(100_000)})
    assert caught.value.hint is not None
    assert newest_step(tmp_path) == 2
    assert not (tmp_path / "step-000000003.0.0").exists()


def test_a_full_disk_fails_aloud_and_keeps_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "256k"):
        checkpointer = save_two(folder)
        for _ in range(3):
            with pytest.raises(CheckpointError, match="No space left") as caught:
                checkpointer.save(3, {"step": 3, "weights": torch.zeros(100_000)})
        assert "free space" in str(caught.value)
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


def test_training_survives_two_failed_saves_but_not_three(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(50_000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = attach(model, optimizer, checkpoint=tmp_path, interval_s=1e-9)
    steps = loop.steps(10)
    with file_size_limit(100_000):
        for _ in range(2):
            next(steps)
            loop.apply()
        next(steps)
        with pytest.raises(CheckpointError):
            loop.apply()
    assert capsys.readouterr().err.count("File too large") == 3


def test_unsupported_places_are_refused() -> None:
    with pytest.raises(CheckpointError, match="s3 is not supported"):
        Checkpointer("s3://bucket/prefix")
