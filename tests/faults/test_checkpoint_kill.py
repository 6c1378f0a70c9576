"""SIGKILL at random moments of saving: what is found afterwards is whole, or named as torn."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from costopt.train.checkpointer import Checkpointer
from tests.support.process_state import is_running

KILLS = int(os.environ.get("COSTOPT_KILLS", "30"))
WEIGHTS = 200_000
KILLED = ("writer", "both", "trainer")


def state(step: int) -> dict[str, object]:
    return {"step": step, "weights": torch.full((WEIGHTS,), float(step)), "more": [step] * 50}


def save_for_ever(folder: Path, generation: int, first: int) -> None:
    """What is reported in ``told`` was reported as durable."""
    checkpointer = Checkpointer(folder, keep=2, generation=generation)
    step = first
    while True:
        step += 1
        checkpointer.save(step, state(step))
        (folder / "writer").write_text(str(checkpointer.writer_pid))
        (folder / "durable").write_text(str(step))


def kill_while_saving(
    folder: Path, generation: int, first: int, after_s: float, killed: str
) -> None:
    """Kill the trainer, the process that writes for it, or both, some time after a first save."""
    (folder / "writer").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            save_for_ever(folder, generation, first)
        finally:
            os._exit(1)
    writer = wait_for_number(folder / "writer")
    time.sleep(after_s)
    victims = {"writer": (writer, child), "both": (child, writer), "trainer": (child,)}[killed]
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for_end(writer)


def wait_for_number(path: Path) -> int:
    for _ in range(100_000):
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.002)
    raise AssertionError(f"no {path.name} after 200 s")


def wait_for_end(pid: int) -> None:
    for _ in range(100_000):
        if not is_running(pid):
            return
        time.sleep(0.002)
    raise AssertionError(f"process {pid} is still there after 200 s")


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_no_kill_tears_a_checkpoint_unnoticed(tmp_path: Path) -> None:
    draw = random.Random(4)
    torch.set_num_threads(1)
    torn, newest = 0, 0
    (tmp_path / "durable").write_text("0")
    for generation in range(1, KILLS + 1):
        killed = KILLED[generation % len(KILLED)]
        kill_while_saving(tmp_path, generation, newest, draw.uniform(0.0, 0.03), killed)
        reported = int((tmp_path / "durable").read_text() or "0")
        checkpointer = Checkpointer(tmp_path, generation=generation)
        restored = checkpointer.restore()
        torn += len(checkpointer.refused)
        assert all("interrupted" in refused.message for refused in checkpointer.refused)
        assert restored is not None, "what was reported as saved is not there"
        newest = restored.state["step"]
        assert newest >= reported, "a save that was reported is not there"
        assert restored.manifest.step == newest
        assert torch.equal(restored.state["weights"], torch.full((WEIGHTS,), float(newest)))
    assert torn > 0, "no kill fell into a save: the test shows nothing"
    assert len(list(tmp_path.glob("step-*"))) <= 4, "what was torn is never cleaned away"
