"""Iterable data sets: batch N of a shard at step N, whatever happened before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from costopt.domain.errors import CostoptError
from costopt.train import Stream
from tests.support.errors import has_code

SHARDS = 4
LENGTH = 5


class Numbers(IterableDataset[int]):
    """Those of one shard; counts how many were read."""

    read = 0

    def __init__(self, shard: int, shards: int) -> None:
        self._shard, self._shards, self._at = shard, shards, 0

    def __iter__(self) -> Iterator[int]:
        while self._at < LENGTH:
            Numbers.read += 1
            self._at += 1
            yield (self._at - 1) * self._shards + self._shard
        self._at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self._at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._at = state["at"]


def expected(step: int, shard: int) -> int:
    return step % LENGTH * SHARDS + shard


def plain(shard: int, shards: int) -> range:
    return range(shard, LENGTH * shards, shards)


def test_a_step_takes_the_same_batch_in_any_order_of_events() -> None:
    stream = Stream(plain, shards=SHARDS)
    for step in (0, 1, 1, 2, 7, 7, 3, 4, 12, 0):  # repeated, skipped ahead, rolled back
        for shard in range(SHARDS):
            assert stream(step, shard) == expected(step, shard)
    later = Stream(plain, shards=SHARDS)
    assert later(9, 2) == expected(9, 2)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_stateful_loader_is_not_read_again() -> None:
    def loader(shard: int, shards: int) -> StatefulDataLoader[int]:
        return StatefulDataLoader(Numbers(shard, shards), batch_size=None)

    before = Stream(loader, shards=SHARDS)
    for step in range(3):
        for shard in (0, 1):
            assert int(before(step, shard)) == expected(step, shard)
    state = before.state_dict()
    after = Stream(loader, shards=SHARDS)
    after.load_state_dict(state)
    Numbers.read = 0
    assert int(after(3, 0)) == expected(3, 0)
    assert Numbers.read == 1
    assert int(after(3, 1)) == expected(3, 1)
    # A shard of another process, and a step before the state, are advanced from the beginning.
    assert int(after(3, 3)) == expected(3, 3)
    rolled_back = Stream(loader, shards=SHARDS)
    rolled_back.load_state_dict(state)
    assert int(rolled_back(1, 0)) == expected(1, 0)


def test_an_empty_or_unknown_shard_is_refused() -> None:
    with pytest.raises(CostoptError, check=has_code("empty")):
        Stream(lambda *_: (), shards=2)(0, 1)
    with pytest.raises(CostoptError):
        Stream(plain, shards=2)(0, 2)
