"""A reduction that breaks, or whose result must not be used, leaves nothing behind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from costopt.train.all_reduce import AllReduceReduction
from costopt.train.batches import FunctionSamples, ShardWorker
from costopt.train.group import PeerLostError, RankGroup, StepVote
from costopt.train.reduction import GradientLayout
from costopt.train.tree_reduction import TreeReduction

SHARDS = 5


class Fenced(RankGroup):
    """A single process whose fence is closed as often as it is reported."""

    closed = 0

    def fence(self) -> None:
        if self.closed:
            self.closed -= 1
            raise PeerLostError("closed")


def shard(step: int, number: int) -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(step * 100 + number))


def work(kind: type[TreeReduction | AllReduceReduction]) -> tuple[Fenced, nn.Module, ShardWorker]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
    group, layout = Fenced(), GradientLayout(model)
    return (
        group,
        model,
        ShardWorker(FunctionSamples(shard), layout, kind(group, layout, SHARDS), seed=1),
    )


def compute(model: nn.Module, shards: ShardWorker, step: int, most: int = SHARDS) -> None:
    for number, batch in enumerate(shards.batches(step, step)):
        if number == most:
            return
        with shards.compute(batch):
            model(batch).square().sum().backward()


def outcome(model: nn.Module) -> Tensor:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    buffers = [buffer.float().flatten() for buffer in model.buffers()]
    return torch.cat([*(gradient.flatten() for gradient in gradients), *buffers])


@pytest.mark.parametrize("kind", [TreeReduction, AllReduceReduction])
def test_what_was_not_used_does_not_count(
    kind: type[TreeReduction | AllReduceReduction],
) -> None:
    _, plain, undisturbed = work(kind)
    compute(plain, undisturbed, 0)
    undisturbed.reduce(StepVote())
    group, model, shards = work(kind)
    group.closed = 1
    compute(model, shards, 0)
    with pytest.raises(PeerLostError):
        shards.reduce(StepVote())
    shards.salvage()
    compute(model, shards, 0, most=3)
    shards.salvage()
    compute(model, shards, 0)
    shards.reduce(StepVote())
    assert torch.equal(outcome(model), outcome(plain))


def test_gradients_from_before_do_not_count() -> None:
    _, plain, undisturbed = work(TreeReduction)
    compute(plain, undisturbed, 0)
    undisturbed.reduce(StepVote())
    _, model, shards = work(TreeReduction)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    compute(model, shards, 0)
    shards.reduce(StepVote())
    assert torch.equal(outcome(model), outcome(plain))


def test_the_mean_is_that_of_the_whole_batch() -> None:
    _, model, shards = work(TreeReduction)
    model.eval()
    compute(model, shards, 0)
    shards.reduce(StepVote())
    found = outcome(model)
    model.zero_grad()
    (sum(model(shard(0, number)).square().sum() for number in range(SHARDS)) / SHARDS).backward()
    assert torch.allclose(outcome(model), found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("silent", [0, 1, 4])
def test_a_shard_without_any_gradient_counts_as_zeros(silent: int) -> None:
    group, model = Fenced(), nn.Linear(4, 4)
    layout = GradientLayout(model)
    reduction = TreeReduction(group, layout, SHARDS)
    shards = ShardWorker(FunctionSamples(shard), layout, reduction, seed=1)
    for number, batch in enumerate(shards.batches(0, 0)):
        with shards.compute(batch):
            if number != silent:
                model(batch).sum().backward()
    shards.reduce(StepVote())
    assert model.bias.grad is not None
    assert torch.equal(model.bias.grad, torch.full((4,), 3.0 * (SHARDS - 1) / SHARDS))


def test_votes_and_losses_are_read_back() -> None:
    _, model, shards = work(TreeReduction)
    for number, batch in enumerate(shards.batches(0, 0)):
        with shards.compute(batch):
            model(batch).sum().backward()
            if number % 2:
                shards.observe(float(number))
    decision = shards.reduce(StepVote(stop=True, part=True))
    assert (decision.stops, decision.save, decision.part, decision.loss) == (1, False, True, 2.0)
