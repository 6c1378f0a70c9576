"""A step of an optimizer while its state is being copied: the copy is of one step, never of two."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from costopt.train import Checkpointer, FailedSave, state_layout
from tests.support import forked_commands
from tests.support.forked_commands import TRAINERS
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import ROOT, variables

WIDTH = 200
"""Weights and moments of a layer are large enough to be copied by the thread."""
STEP_WITHIN_S = 1.0
"""How long an unguarded step has to spoil the copy. A guarded one never ends before it."""


class Trained:
    """A model that has made one step."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer], **options: object) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        self.optimizer = optimizer(self.model.parameters(), lr=0.1, **options)
        self.step()

    def step(self) -> None:
        self.model(torch.ones(4, WIDTH)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors(inner)


@contextmanager
def copy_held_until_a_step_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[], None]], None]]:
    """The copy begins once the step that is passed has ended, or is known to wait."""
    stepped, copy_all = threading.Event(), state_layout._copy_all

    def slow(*given: object) -> None:
        stepped.wait(STEP_WITHIN_S)
        copy_all(*given)  # type: ignore[arg-type]

    def make(step: Callable[[], None]) -> None:
        step()
        stepped.set()

    monkeypatch.setattr(state_layout, "_copy_all", slow)
    yield make


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    ],
)
def test_a_step_without_copied_waits_for_the_copy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: Callable[..., torch.optim.Optimizer],
    options: dict[str, object],
) -> None:
    trained, checkpointer = Trained(optimizer, **options), Checkpointer(tmp_path)
    before = [tensor.clone() for tensor in tensors(trained.state())]
    with copy_held_until_a_step_ends(monkeypatch) as make:
        assert checkpointer.begin(1, trained.state(), overlap=True)
        make(trained.step)
    (outcome,) = checkpointer.wait()
    assert not isinstance(outcome, FailedSave)
    restored = Checkpointer(tmp_path).restore()
    assert restored is not None
    after = list(tensors(restored.state))
    assert len(after) == len(before)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(after, before, strict=True))


def test_steps_after_a_copy_do_not_wait(tmp_path: Path) -> None:
    trained, checkpointer = Trained(torch.optim.AdamW, fused=True), Checkpointer(tmp_path)
    for step in range(1, 4):
        assert checkpointer.begin(step, trained.state(), overlap=True)
        trained.step()
        assert not state_layout._overlapped
        assert not any(isinstance(outcome, FailedSave) for outcome in checkpointer.wait())


SHARDED = """
import sys, threading, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from costopt.train import Checkpointer, FailedSave, state_layout

meeting = f"file://{sys.argv[1]}/rendezvous"
dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
model = nn.Sequential(nn.Linear(200, 200), nn.Linear(200, 200))
fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=sys.argv[2] == "fused")

def step():
    model(torch.ones(4, 200)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def shards():
    return {name: value._local_tensor for name, value in model.state_dict().items()}

step()
before = {name: shard.clone() for name, shard in shards().items()}
stepped, copy_all = threading.Event(), state_layout._copy_all

def slow(*given):
    stepped.wait(float(sys.argv[3]))
    copy_all(*given)

state_layout._copy_all = slow
checkpointer = Checkpointer(sys.argv[1] + "/checkpoints")
assert checkpointer.begin(1, shards(), overlap=True)
step()
stepped.set()
(outcome,) = checkpointer.wait()
assert not isinstance(outcome, FailedSave), outcome
state = checkpointer.restore().state
assert all(torch.equal(state[name], before[name]) for name in before), "torn"
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["fused", "plain"])
def test_local_shards_of_fsdp2_are_of_one_step(tmp_path: Path, kind: str) -> None:
    words = ["-c", SHARDED, str(tmp_path), kind, str(STEP_WITHIN_S)]
    ran = forked_commands.run(words, ROOT, variables(OMP_NUM_THREADS="1"), PATIENCE_S, TRAINERS)
    assert ran.returncode == 0, ran.stderr
