"""A loop that is stopped and started again ends where an undisturbed one does, bit for bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from costopt.domain.errors import CheckpointError, CostoptError
from costopt.protocol.trainer_files import TrainerState, TrainerStatus
from costopt.train import TrainingExit, TrainingLoop, attach
from costopt.train.checkpoint_manager import SaveInterval
from tests.support.errors import has_code

STEPS = 12


def shard(step: int, number: int) -> Tensor:
    return torch.full((4, 8), (2 * step + number) / 10)


class Run:
    """One incarnation of a script with dropout, Adam, a schedule and Python's own randomness."""

    def __init__(self, folder: Path, **options: Any) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        self.loop: TrainingLoop = attach(
            self.model,
            optimizer,
            scheduler,
            shard,
            global_batch=8,
            virtual_shards=2,
            checkpoint=folder,
            **options,
        )

    def train(self, until: int = STEPS) -> None:
        for step in self.loop.steps(STEPS):
            self.compute()
            self.loop.apply()
            if step + 1 == until:
                self.loop._saving.save_or_raise(until)
                return

    def compute(self) -> None:
        for batch in self.loop.microbatches():
            with self.loop.microbatch(batch):
                self.model(batch * random.random()).square().sum().backward()

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


@pytest.fixture(autouse=True)
def _restore_sigterm() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.process
def test_a_killed_run_resumes_exactly(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole")
    whole.train()
    Run(tmp_path / "killed").train(until=5)
    second = Run(tmp_path / "killed")
    assert second.loop.step == 5
    second.train(until=9)
    third = Run(tmp_path / "killed")
    assert third.loop.step == 9
    third.train()
    assert torch.equal(third.weights(), whole.weights())
    assert third.loop.guarantee == "exact"


@pytest.mark.process
def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    Run(tmp_path).train()
    again = Run(tmp_path)
    before = again.weights()
    again.train()
    assert torch.equal(again.weights(), before)


@pytest.mark.process
def test_a_notice_saves_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notice, status = tmp_path / "notice.json", tmp_path / "status.json"
    monkeypatch.setenv("COSTOPT_NOTICE_FILE", str(notice))
    monkeypatch.setenv("COSTOPT_STATUS_FILE", str(status))
    monkeypatch.setenv("COSTOPT_TOTAL_UNITS", "1200")
    run = Run(tmp_path / "checkpoints")
    steps = run.loop.steps(STEPS)
    next(steps)
    run.compute()
    notice.write_text("{}")
    with pytest.raises(TrainingExit) as stopped:
        run.loop.apply()
    assert stopped.value.code == 0
    reported = TrainerStatus.read(status)
    assert reported is not None
    assert reported.state is TrainerState.STOPPED
    assert reported.saved_units == reported.done_units == 100.0
    assert [saved.units for saved in reported.checkpoints] == [100.0]
    notice.unlink()
    assert Run(tmp_path / "checkpoints").loop.step == 1


@pytest.mark.process
def test_sigterm_stops_a_run_without_an_agent(tmp_path: Path) -> None:
    run = Run(tmp_path)
    next(run.loop.steps(STEPS))
    run.compute()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(TrainingExit) as stopped:
        run.loop.apply()
    assert stopped.value.code == 143


@pytest.mark.process
def test_a_refused_checkpoint_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status.json"
    monkeypatch.setenv("COSTOPT_STATUS_FILE", str(status))
    Run(tmp_path / "c").train(until=3)
    (tmp_path / "c" / "step-000000003.0.0" / "objects.pt").write_bytes(b"torn")
    run = Run(tmp_path / "c")
    run.train(until=3)
    reported = TrainerStatus.read(status)
    assert reported is not None
    assert [(r.name, r.message[:10]) for r in reported.refused] == [
        ("step-000000003.0.0", "objects.pt")
    ]
    assert run.loop.step == 3


@pytest.mark.process
def test_a_turn_without_apply_is_an_error(tmp_path: Path) -> None:
    steps = Run(tmp_path).loop.steps(STEPS)
    next(steps)
    with pytest.raises(CostoptError, check=has_code("no_apply")):
        next(steps)


@pytest.mark.process
def test_another_model_is_refused_with_a_hint(tmp_path: Path) -> None:
    Run(tmp_path).train(until=2)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises((CheckpointError, RuntimeError)):
        attach(model, optimizer, None, shard, global_batch=8, virtual_shards=2, checkpoint=tmp_path)


def test_the_interval_follows_the_measured_save_time() -> None:
    cadence = SaveInterval(interval_s=600, hazard_per_hour=0.5, speed=100)
    assert not cadence.is_due()
    cadence.saved(0.02)
    assert cadence.interval_s == pytest.approx((2 * 7200 * 2.0) ** 0.5)


def test_the_status_survives_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    for text in ("", "{", "[]", json.dumps({"schema": 9}), json.dumps({"schema": 1})):
        path.write_text(text)
        assert TrainerStatus.read(path) is None


SHARDING = {
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("costopt.agent.__main__", {"torch", "numpy", "pydantic"}),
        ("costopt.controller.runtime", {"torch", "numpy", "pydantic"}),
        ("costopt_sim.process_provider", {"torch", "numpy"}),
        ("costopt.checkpoint.writer", {"torch", "numpy", "costopt.domain.job"}),
        ("costopt.train", {"sympy", "torch._dynamo", *SHARDING}),
    ],
)
def test_only_what_is_used_is_imported(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(sorted({heavy!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
