"""A loop over virtual shards in one process: resume, rollback, what is refused, what is said."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from costopt.checkpoint.history import CheckpointHistory
from costopt.domain.errors import CostoptError
from costopt.train import RollbackPolicy, TrainingLoop, attach
from tests.support.errors import has_code
from tests.support.forked_trainers import STEPS, TrainerFactory, result
from tests.support.reserved_port import reserved_port

TOTAL = 12


@pytest.fixture(autouse=True)
def _restore_sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def shard(step: int, number: int) -> Tensor:
    return torch.randn(2, 6, generator=torch.Generator().manual_seed(step * 100 + number))


class Run:
    """One incarnation of a small training with dropout and running statistics."""

    def __init__(self, data: Any = shard, **options: Any) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.losses: list[float | None] = []
        self.steps: list[int] = []
        self.poison: set[int] = set()
        self.loop: TrainingLoop = attach(
            self.model,
            optimizer,
            None,
            data,
            **{"global_batch": 8, "virtual_shards": 4, "clip_norm": 1.0, **options},
        )

    def train(self, until: int = TOTAL) -> None:
        for step in self.loop.steps(TOTAL):
            for batch in self.loop.microbatches():
                with self.loop.microbatch(batch):
                    loss = self.model(batch).square().mean()
                    self.loop.observe(loss * (float("nan") if step in self.poison else 1.0))
                    loss.backward()
            self.loop.apply()
            self.losses.append(self.loop.loss)
            self.steps.append(step)
            if step + 1 == until:
                return

    def weights(self) -> Tensor:
        return torch.cat([t.detach().flatten().float() for t in self.model.state_dict().values()])


@pytest.mark.process
def test_a_run_that_is_cut_short_resumes_exactly(tmp_path: Path) -> None:
    whole = Run()
    whole.train()
    first = Run(checkpoint=tmp_path)
    first.train(until=5)
    first.loop._saving.save_or_raise(first.loop.step)
    del first
    torch.manual_seed(99)
    second = Run(checkpoint=tmp_path)
    second.train()
    assert second.steps[0] == 5
    assert torch.equal(second.weights(), whole.weights())
    assert second.losses == whole.losses[second.steps[0] :]
    assert second.loop.guarantee == "exact"


@pytest.mark.process
def test_a_checkpoint_is_labelled_with_the_loss_of_its_step(tmp_path: Path) -> None:
    run = Run(checkpoint=tmp_path)
    run.train()
    (newest, *_) = CheckpointHistory.open(str(tmp_path)).list()
    assert newest.manifest is not None
    assert newest.manifest.number("loss") == pytest.approx(run.losses[-1], rel=1e-5)


@pytest.mark.process
def test_what_changed_since_the_checkpoint_is_said_and_remembered(tmp_path: Path) -> None:
    Run(checkpoint=tmp_path).train()
    again = Run(checkpoint=tmp_path, seed=5, changed="apply")
    assert again.loop.guarantee == "close: seed 0 became 5"
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    threads = Run(checkpoint=tmp_path)
    torch.set_num_threads(before)
    assert threads.loop.guarantee == f"close: threads {before} became {before + 1}"


@pytest.mark.slow
def test_the_order_in_which_shards_are_computed_does_not_matter() -> None:
    forth, back = Run(), Run()
    forth.train(until=1)
    next(back.loop.steps(TOTAL))
    for batch in reversed(list(back.loop.microbatches())):
        with back.loop.microbatch(batch):
            back.model(batch).square().mean().backward()
    back.loop.apply()
    assert torch.equal(forth.weights(), back.weights())


@pytest.mark.process
def test_a_loss_gone_wrong_goes_back_and_takes_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def data(step: int, number: int) -> Tensor:
        asked.append(step)
        return shard(step, number)

    run = Run(data, checkpoint=tmp_path, rollback=RollbackPolicy(limit=2))
    run.train(until=3)
    run.loop._saving.save_or_raise(run.loop.step)
    for step in run.loop.steps(TOTAL):
        run.poison = {6} if run.loop._state.rollbacks == 0 else set()
        for batch in run.loop.microbatches():
            with run.loop.microbatch(batch):
                loss = run.model(batch).square().mean()
                run.loop.observe(loss * (float("nan") if step in run.poison else 1.0))
                loss.backward()
        run.loop.apply()
        run.steps.append(step)
    assert run.steps[:8] == [0, 1, 2, 3, 4, 5, 6, 3]
    assert sorted(set(asked)) == list(range(TOTAL + 4))
    assert "back to step 3" in capsys.readouterr().err
    assert all(torch.isfinite(parameter).all() for parameter in run.model.parameters())


@pytest.mark.process
def test_rollbacks_are_bounded(tmp_path: Path) -> None:
    run = Run(checkpoint=tmp_path, rollback=RollbackPolicy(limit=2))
    run.train(until=2)
    run.loop._saving.save_or_raise(run.loop.step)
    run.poison = {4}
    with pytest.raises(CostoptError, match="the loss is nan, after 2 rollbacks of at most 2"):
        run.train()
    assert run.steps.count(4) == 2


def test_without_a_checkpoint_there_is_nothing_to_go_back_to() -> None:
    run = Run(rollback=RollbackPolicy())
    run.poison = {1}
    with pytest.raises(CostoptError, match="after 0 rollbacks"):
        run.train()


def test_a_shard_that_was_left_out_is_an_error() -> None:
    run = Run()
    next(run.loop.steps(TOTAL))
    batches = run.loop.microbatches()
    with run.loop.microbatch(next(batches)):
        pass
    with pytest.raises(CostoptError, check=has_code("missing_shards")):
        run.loop.apply()


def test_a_batch_of_elsewhere_is_an_error() -> None:
    run = Run()
    next(run.loop.steps(TOTAL))
    with (
        pytest.raises(CostoptError, check=has_code("foreign_shard")),
        run.loop.microbatch(torch.ones(1)),
    ):
        pass
    with pytest.raises(CostoptError, check=has_code("outside_microbatch")):
        run.loop.observe(1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"virtual_shards": 0},
        {"virtual_shards": 3},
        {"data": 5},
        {"data": []},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CostoptError):
        Run(**options)


@contextmanager
def fixed_group() -> Iterator[list[dict[str, str]]]:
    """The variables that torchrun would set for each of two processes."""
    with reserved_port() as port:
        fixed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        yield [fixed | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


@pytest.mark.worker_group("processes")
def test_ranks_of_a_fixed_group_that_differ_are_not_exact(tmp_path: Path) -> None:
    with TrainerFactory() as nursery, fixed_group() as group:
        pids = [
            nursery.start(env, output=tmp_path / f"{rank}", initial=True, threads=rank + 1)
            for rank, env in enumerate(group)
        ]
        assert [nursery.wait(pid) for pid in pids] == [0, 0]
    guarantees = [result(tmp_path / f"{rank}")["guarantee"] for rank in range(2)]
    assert guarantees == ["close: members differ: threads=1, threads=2"] * 2


@pytest.mark.worker_group("processes")
def test_a_fixed_group_stops_at_the_same_step_and_goes_on_at_another_size(tmp_path: Path) -> None:
    options = {"initial": True, "checkpoint": str(tmp_path / "checkpoints")}
    with TrainerFactory() as nursery, fixed_group() as group:
        pids = [
            nursery.start(env, output=tmp_path / f"first-{rank}", hold=[3], **options)
            for rank, env in enumerate(group)
        ]
        while not (tmp_path / "first-1.step").exists():
            assert nursery.status(pids[1]) is None, (tmp_path / "first-1.log").read_text()
            time.sleep(0.005)
        os.kill(pids[1], signal.SIGTERM)
        (tmp_path / "go-3").touch()
        assert [nursery.wait(pid) for pid in pids] == [143, 143]
        reached = {(tmp_path / f"first-{rank}.step").read_text() for rank in range(2)}
        assert len(reached) == 1
        for name, more in (("resumed", options), ("undisturbed", {"initial": True})):
            assert nursery.wait(nursery.start({}, output=tmp_path / name, **more)) == 0
    resumed, undisturbed = result(tmp_path / "resumed"), result(tmp_path / "undisturbed")
    assert 0 < resumed["steps"][0] < STEPS
    assert resumed["weights"] == undisturbed["weights"]
    assert resumed["guarantee"] == "exact"
