"""The tree's order is the same whoever adds what; data and draws follow from the shard alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.errors import CostoptError
from costopt.train.batches import DatasetSamples, FunctionSamples, batch_source, seed_generators
from costopt.train.loop import LossMonitor, RollbackPolicy
from costopt.train.reduction import (
    PartialSums,
    ReductionTree,
    TreeNode,
    covering_nodes,
    owned_shards,
)
from costopt.train.run_state import ExactnessGuarantee, changed_conditions, runtime_conditions


def bracketed(tree: ReductionTree, parts: dict[TreeNode, str]) -> str:
    sums: PartialSums[str] = PartialSums(tree, lambda left, right: f"({left}+{right})")
    for node, part in parts.items():
        sums.add(node, part)
    ((_, total),) = sums.in_order()
    return total


def whole(shards: int) -> str:
    return bracketed(ReductionTree(shards), {TreeNode(0, i): str(i) for i in range(shards)})


def test_neighbours_are_added_first() -> None:
    assert whole(8) == "(((0+1)+(2+3))+((4+5)+(6+7)))"
    assert whole(5) == "(((0+1)+(2+3))+4)"
    assert whole(1) == "0"


@pytest.mark.slow
@given(shards=st.integers(1, 40), size=st.integers(1, 45), draw=st.randoms())
def test_every_division_adds_in_the_same_order(shards: int, size: int, draw: random.Random) -> None:
    tree = ReductionTree(shards)
    met: dict[TreeNode, str] = {}
    for rank in range(size):
        mine = owned_shards(rank, size, shards)
        sums: PartialSums[str] = PartialSums(tree, lambda left, right: f"({left}+{right})")
        for shard in draw.sample(list(mine), len(mine)):
            sums.add(TreeNode(0, shard), str(shard))
        held = dict(sums.in_order())
        assert list(held) == covering_nodes(tree, mine)
        met |= held
    pieces = list(met.items())
    draw.shuffle(pieces)
    assert bracketed(tree, dict(pieces)) == whole(shards)


@given(shards=st.integers(1, 64), size=st.integers(1, 70))
def test_shards_are_shared_evenly_and_wholly(shards: int, size: int) -> None:
    parts = [owned_shards(rank, size, shards) for rank in range(size)]
    assert [shard for part in parts for shard in part] == list(range(shards))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


class Numbers:
    """Ten numbers; each look at one draws, as augmentation does."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        return index, random.random(), torch.rand(()).item()


def dataset(seed: int = 1) -> DatasetSamples:
    return DatasetSamples(Numbers(), seed=seed, shard_size=2, shards=3)


def test_a_dataset_is_permuted_in_each_epoch_without_a_gap() -> None:
    samples = dataset()
    seen = [
        int(index)
        for step in range(5)
        for shard in range(3)
        for index in samples.batch(step, shard)[0]
    ]
    epochs = [seen[0:10], seen[10:20], seen[20:30]]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_batch_is_the_same_whenever_it_is_asked() -> None:
    first = dataset().batch(3, 1)
    again = dataset()
    for step, shard in ((4, 2), (0, 0), (3, 1)):
        batch = again.batch(step, shard)
    assert all(torch.equal(a, b) for a, b in zip(first, batch, strict=True))
    other = dataset(seed=2).batch(3, 1)
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_what_is_drawn_follows_from_the_numbers() -> None:
    seed_generators(1, 2, 3)
    first = torch.rand(3), random.random()
    seed_generators(1, 2, 4)
    assert not torch.equal(torch.rand(3), first[0])
    seed_generators(1, 2, 3)
    assert torch.equal(torch.rand(3), first[0])
    assert random.random() == first[1]


@pytest.mark.parametrize(
    ("data", "batch", "complaint"),
    [
        (Numbers(), 7, "cannot be cut into 3"),
        ([], 6, "empty"),
        (None, 6, "NoneType"),
        (iter([1]), 6, "iterator"),
    ],
)
def test_data_that_cannot_be_cut_is_refused(data: Any, batch: int, complaint: str) -> None:
    with pytest.raises(CostoptError, match=complaint):
        batch_source(data, seed=0, global_batch=batch, shards=3, collate=None)


def test_a_function_is_asked_for_step_and_shard() -> None:
    samples = batch_source(lambda *at: at, seed=0, global_batch=6, shards=3, collate=None)
    assert isinstance(samples, FunctionSamples)
    assert samples.batch(4, 2) == (4, 2)


def test_a_guarantee_names_what_voided_it_once() -> None:
    guarantee = ExactnessGuarantee()
    assert str(guarantee) == "exact"
    before = runtime_conditions()
    assert changed_conditions(before, dict(before)) == []
    now = before | {"threads": "64"}
    for _ in range(2):
        guarantee.void(*changed_conditions(before, now))
    assert str(guarantee) == f"close: threads {before['threads']} became 64"


def test_a_spike_is_reported_from_the_usual() -> None:
    watch = LossMonitor(RollbackPolicy(spike=3.0))
    assert watch.wrong(1e9) is None
    for loss in (1.0, 1.1, 0.9) * 4:
        assert watch.wrong(loss) is None
    assert watch.wrong(None) is None
    assert watch.wrong(2.9) is None
    assert "3 times the usual" in (watch.wrong(3.5) or "")
    assert "nan" in (watch.wrong(float("nan")) or "")
    assert LossMonitor(RollbackPolicy()).wrong(1e30) is None


@pytest.mark.parametrize("options", [{"limit": 0}, {"spike": 1.0}])
def test_an_impossible_rollback_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limit must be"):
        RollbackPolicy(**options)
