"""SIGKILL at random moments of saving: what is found afterwards is whole, or named as torn."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from costopt.train import Checkpointer
from costopt.train.folder import CheckpointFolder

KILLS = int(os.environ.get("COSTOPT_KILLS", "30"))


def state(step: int) -> dict[str, object]:
    return {"step": step, "weights": torch.full((200_000,), float(step)), "more": [step] * 50}


def save_for_ever(folder: Path, generation: int, first: int) -> None:
    checkpointer = Checkpointer(folder, keep=2, generation=generation)
    step = first
    while True:
        step += 1
        checkpointer.save(step, state(step))
        (folder / "told").write_text(str(step))


def kill_while_saving(folder: Path, generation: int, first: int, after_s: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            save_for_ever(folder, generation, first)
        finally:
            os._exit(1)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_no_kill_tears_a_checkpoint_in_silence(tmp_path: Path) -> None:
    draw = random.Random(4)
    torch.set_num_threads(1)
    torn, newest = 0, 0
    (tmp_path / "told").write_text("0")
    for generation in range(1, KILLS + 1):
        kill_while_saving(tmp_path, generation, newest, draw.uniform(0.002, 0.06))
        told = int((tmp_path / "told").read_text() or "0")
        checkpointer = Checkpointer(tmp_path, generation=generation)
        restored = checkpointer.restore()
        torn += len(checkpointer.refused)
        assert all("cut short" in refused.message for refused in checkpointer.refused)
        if restored is None:
            assert told == 0
            continue
        newest = restored.state["step"]
        assert newest >= told, "a save that was reported is not there"
        assert restored.manifest.step == newest
        assert torch.equal(restored.state["weights"], torch.full((200_000,), float(newest)))
    valid = [n for n in CheckpointFolder(tmp_path).names() if (tmp_path / str(n)).exists()]
    assert newest > 0
    assert valid
    assert torn > 0, "no kill fell into a save: the test shows nothing"
