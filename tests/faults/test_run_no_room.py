"""Checkpoints and state without room or permission: one message, nothing left, nothing lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, Place, no_traceback, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """A file system in memory over ``folder``, for as long as the context lasts."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Leave no byte free."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_file_where_checkpoints_should_lie(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    place.saves.write_text("")
    run = place.finish()
    assert run.returncode == 1
    assert f"cannot keep checkpoints in {place.saves}" in run.stderr
    assert "→" in run.stderr
    assert no_traceback(run.stderr)
    assert place.events() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [("size=1m", "one takes 0.004 GiB"), ("size=64m,ro", "Read-only file system")],
)
def test_no_launch_without_a_place_for_checkpoints(tmp_path: Path, options: str, said: str) -> None:
    place = Place(tmp_path).write()
    with small_disk(place.saves, options):
        run = place.finish()
    assert run.returncode == 1
    assert f"cannot keep checkpoints in {place.saves}" in run.stderr
    assert said in run.stderr
    assert place.events() == []
    assert place.processes() == []


@pytest.mark.exhaustive("jobs on simulated nodes")
def test_room_for_checkpoints_that_runs_out(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    hold(place.saves, 15)
    with small_disk(place.saves, "size=8m"):
        with place.controlled() as process:
            wait_until((place.saves / "step-10.json").exists, "checkpoint")
            fill(place.saves / "fill")
            let_go(place.saves)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 1, said
            assert place.processes() == []
        assert "No space left on device" in said
        assert no_traceback(said)
        assert (place.saves / "step-10.json").read_bytes() == b"{}"
        (place.saves / "fill").unlink()
        again = place.finish()
        assert again.returncode == 0, again.stderr
        assert int((place.saves / "starts").read_text().split()[-1]) >= 10


@pytest.mark.exhaustive("jobs on simulated nodes")
def test_a_state_directory_that_runs_full(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with small_disk(place.state, "size=2m"):
        place.write()
        hold(place.saves, 40)
        with place.controlled() as process:
            wait_until(lambda: any(place.saves.glob("step-*")), "checkpoint")
            fill(place.state / "fill")
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 1, said
            assert place.processes() == []
        assert said.count("error: ") == 1
        # whichever file is written first once the disk is full: the ledger's or a node's
        assert re.search(r"→ .*\bspace\b", said)
        assert no_traceback(said)
        (place.state / "fill").unlink()
        let_go(place.saves)
        again = place.finish()
        assert again.returncode == 0, again.stderr
        assert (place.saves / "starts").read_text().split()[-1] != "0"
        assert len(place.of(ev.JobSubmitted)) == 1


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    place = Place(tmp_path).write()
    with small_disk(place.state, "size=2m,ro"):
        run = place.finish()
    assert run.returncode == 1
    assert "Read-only file system" in run.stderr
    assert "→" in run.stderr
    assert no_traceback(run.stderr)
