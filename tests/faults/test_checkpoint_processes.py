"""Who dies when: the trainer, the process that writes for it, or both. Nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from costopt.domain.errors import CheckpointError
from costopt.train.checkpointer import Checkpointer
from costopt.train.save_queue import FailedSave
from tests.support.forked_commands import TRAINERS, ForkedCommand
from tests.support.node_folder import variables
from tests.support.process_state import is_running, pause

TRAINER = """
import os, signal, sys, time, torch
from costopt.train.checkpointer import Checkpointer
checkpointer = Checkpointer(sys.argv[1])
checkpointer.save(1, {"step": 1})
state = {"step": 2, "weights": torch.full((3_000_000,), 2.0)}
for step in range(2, int(sys.argv[3]) + 1):
    state["step"] = step
    assert checkpointer.begin(step, state, overlap=sys.argv[2] == "overlap")
    if sys.argv[2] == "overlap":
        checkpointer.copied()
    if step < int(sys.argv[3]):
        checkpointer.wait()
print(checkpointer.writer_pid, flush=True)
"""


def started(folder: Path, ending: str, mode: str = "copy", steps: int = 2) -> ForkedCommand:
    words = ["-c", TRAINER + ending, str(folder), mode, str(steps)]
    return ForkedCommand(words, folder, variables(), TRAINERS)


def until(what: Callable[[], bool], limit_s: float = 200.0) -> None:
    """Wait for it; raises AssertionError where it does not come true."""
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def newest_step(folder: Path) -> int | None:
    restored = Checkpointer(folder).restore()
    return None if restored is None else int(restored.state["step"])


def shared_memory() -> set[Path]:
    """But for the folders of the daemon's trials, which may run meanwhile."""
    found = {path for path in Path("/dev/shm").iterdir() if "costopt" in path.name}
    return {path for path in found if not path.name.startswith("costopt-trial-")}


@pytest.mark.parametrize(
    ("ending", "mode"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "copy"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "overlap"),
        ("raise RuntimeError('a bug')", "copy"),
        ("checkpointer.close()", "overlap"),
    ],
)
def test_what_was_begun_is_committed_however_the_trainer_ends(
    tmp_path: Path, ending: str, mode: str
) -> None:
    before = shared_memory()
    trainer = started(tmp_path, ending, mode)
    reported, _ = trainer.communicate(timeout=200)
    writer = int(reported)
    until(lambda: not is_running(writer))
    assert newest_step(tmp_path) == 2
    assert shared_memory() <= before


def test_the_death_of_both_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    before = shared_memory()
    trainer = started(tmp_path, "time.sleep(600)", steps=3)
    until(lambda: trainer.said().endswith("\n"))
    writer = int(trainer.said())
    pause(writer)
    trainer.kill()
    os.kill(writer, signal.SIGKILL)
    trainer.communicate()
    until(lambda: not is_running(writer))
    assert newest_step(tmp_path) in (2, 3)
    assert shared_memory() <= before


def test_a_child_that_the_trainer_forked_does_not_keep_the_writer(tmp_path: Path) -> None:
    """A data loader's worker inherits the trainer's end of the socket."""
    ending = "\nchild = os.fork()\nif not child: os.close(1); time.sleep(600)\nprint(child)"
    trainer = started(tmp_path, f"{ending}\nsys.stdout.flush(); os._exit(0)")
    reported, _ = trainer.communicate(timeout=200)
    writer, child = map(int, reported.split())
    until(lambda: not is_running(writer))
    assert is_running(child)
    os.kill(child, signal.SIGKILL)
    assert newest_step(tmp_path) == 2


def test_the_writer_s_death_is_a_failed_save_and_the_next_one_works(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"step": 1})
    assert checkpointer.writer_pid is not None
    pause(checkpointer.writer_pid)
    assert checkpointer.begin(2, {"step": 2})
    assert not checkpointer.begin(3, {"step": 3}), "a save in flight was overwritten"
    os.kill(checkpointer.writer_pid, signal.SIGKILL)
    (outcome,) = checkpointer.wait()
    assert isinstance(outcome, FailedSave)
    assert (outcome.step, "ended" in outcome.error.message) == (2, True)
    assert checkpointer.save(4, {"step": 4}).units == 4.0
    assert newest_step(tmp_path) == 4


def test_a_save_that_may_not_wait_takes_the_second_buffer(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"step": 1})
    writer = checkpointer.writer_pid
    assert writer is not None
    pause(writer)
    weights = torch.full((1000,), 2.0)
    assert checkpointer.begin(2, {"step": 2, "weights": weights})
    weights.fill_(3.0)
    threading.Timer(0.2, lambda: os.kill(writer, signal.SIGCONT)).start()
    checkpointer.save(3, {"step": 3, "weights": weights})
    assert [outcome.name for outcome in checkpointer.poll() if not isinstance(outcome, FailedSave)]
    for step in (2, 3):
        state = Checkpointer(tmp_path).load(f"step-{step:09d}.0.0").state
        assert torch.equal(state["weights"], torch.full((1000,), float(step)))


def test_a_trainer_that_was_stopped_and_wakes_may_not_save(tmp_path: Path) -> None:
    asleep = Checkpointer(tmp_path, generation=3)
    asleep.save(1, {"step": 1})
    awake = Checkpointer(tmp_path, generation=4)
    awake.restore()
    awake.claim()
    with pytest.raises(CheckpointError, match=r"generation 4\b"):
        asleep.save(9, {"step": 9})
    assert asleep.begin(10, {"step": 10})
    (outcome,) = asleep.wait()
    assert isinstance(outcome, FailedSave)
    awake.save(2, {"step": 2})
    assert newest_step(tmp_path) == 2


def test_tensors_that_change_while_they_are_copied_are_not_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from costopt.train import state_layout

    started_copy, go_on = threading.Event(), threading.Event()
    copy_all = state_layout._copy_all

    def slow(*given: object) -> None:
        started_copy.set()
        go_on.wait(200)
        copy_all(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(state_layout, "_copy_all", slow)
    checkpointer = Checkpointer(tmp_path)
    weights, small = torch.ones(100_000), torch.ones(10)
    assert checkpointer.begin(1, {"weights": weights, "small": small}, overlap=True)
    started_copy.wait(200)
    small.add_(1)
    weights.add_(1)
    go_on.set()
    (outcome,) = checkpointer.wait()
    assert isinstance(outcome, FailedSave)
    assert "changed while it was copied" in outcome.error.message
    assert checkpointer.begin(2, {"weights": weights}, overlap=True)
    weights.add_(1)
    (outcome,) = checkpointer.wait()
    assert not isinstance(outcome, FailedSave), "after that, copies are not overlapped any more"
    restored = Checkpointer(tmp_path).restore()
    assert restored is not None
    assert torch.equal(restored.state["weights"], torch.full((100_000,), 2.0))


def test_small_buffers_may_change_while_the_rest_is_copied(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    weights, small = torch.ones(3_000_000), torch.ones(10)
    assert checkpointer.begin(1, {"weights": weights, "small": small}, overlap=True)
    small.add_(1)
    checkpointer.copied()
    (outcome,) = checkpointer.wait()
    assert not isinstance(outcome, FailedSave)
    restored = Checkpointer(tmp_path).restore()
    assert restored is not None
    assert torch.equal(restored.state["small"], torch.ones(10))


def test_who_becomes_the_one_that_saves_goes_on_from_what_the_gang_saved(tmp_path: Path) -> None:
    """Rank 0 changes while the gang trains on: nobody restores, and nothing is forgotten."""
    first, second = Checkpointer(tmp_path, generation=1), Checkpointer(tmp_path, generation=1)
    first.save(1, {"step": 1})
    second.restore()
    first.save(2, {"step": 2})
    second.set_parent(2)
    second.save(3, {"step": 3})
    with pytest.raises(CheckpointError, match=r"generation 2\b"):
        first.save(4, {"step": 4})
    first.set_parent(3)
    first.save(5, {"step": 5})
    with pytest.raises(CheckpointError, match=r"generation 3\b"):
        second.save(6, {"step": 6})
    (tmp_path / "step-000000005.3.0" / "objects.pt").unlink()
    (tmp_path / "step-000000003.2.0" / "objects.pt").unlink()
    assert newest_step(tmp_path) == 2


def test_a_later_generation_of_an_earlier_run_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that was lost counts from 1 again; a trainer that slept before it restored wakes."""
    Checkpointer(tmp_path, generation=3).save(10, {"step": 10})
    with pytest.raises(CheckpointError, match="taken over since this process began"):
        Checkpointer(tmp_path, generation=1).restore()
    monkeypatch.setattr("costopt.train.checkpointer.process_start_time", time.time)
    late = Checkpointer(tmp_path, generation=1)
    assert late.restore() is not None
    late.save(11, {"step": 11})
    assert (newest_step(tmp_path), late.generation) == (11, 3)


def test_who_ends_without_a_word_to_the_writer_hears_no_complaint() -> None:
    code = (
        "from costopt.checkpoint.writer_client import WriterProcess\n"
        "WriterProcess({})\n"
        "kept = WriterProcess({})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
