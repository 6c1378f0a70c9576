"""The data of a step, cut into virtual shards, and the worker that computes this process' share.

The batch of a virtual shard is a pure function of (seed, step, shard).
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from costopt.domain.errors import CostoptError
from costopt.train.group import StepAgreement, StepVote
from costopt.train.reduction import GradientLayout, Reduction

ORDER, SAMPLE, SHARD = range(3)
"""The purpose of a draw, so that no two streams are the same."""


class BatchSource(Protocol):
    """Supplies the batch of one virtual shard at one step, always the same one."""

    def batch(self, step: int, shard: int) -> Any:
        """Return the batch in the form that the model takes."""
        ...


class FunctionSamples:
    """A user's function ``data(step, shard) -> batch``; it must not depend on anything else."""

    def __init__(self, function: Callable[[int, int], Any]) -> None:
        self._function = function

    def batch(self, step: int, shard: int) -> Any:
        """Return the function's result."""
        return self._function(step, shard)


class DatasetSamples:
    """A map-style dataset, permuted for each epoch by (seed, epoch).

    The steps run through the epochs without a gap, so a batch may contain the end of one and the
    beginning of the next. Random augmentation draws from (seed, epoch, index).
    """

    def __init__(
        self,
        dataset: Any,
        *,
        seed: int,
        shard_size: int,
        shards: int,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self._dataset, self._seed = dataset, seed
        self._shard_size, self._shards = shard_size, shards
        self._collate = torch.utils.data.default_collate if collate is None else collate
        self._orders: dict[int, list[int]] = {}

    def batch(self, step: int, shard: int) -> Any:
        """Return the shard's samples, collated."""
        first = (step * self._shards + shard) * self._shard_size
        return self._collate([self._sample(first + i) for i in range(self._shard_size)])

    def _sample(self, place: int) -> Any:
        epoch, within = divmod(place, len(self._dataset))
        index = self._order(epoch)[within]
        seed_generators(self._seed, SAMPLE, epoch, index)
        return self._dataset[index]

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            draw = torch.Generator().manual_seed(derive_seed(self._seed, ORDER, epoch))
            self._orders = {
                past: order for past, order in self._orders.items() if past == epoch - 1
            }
            self._orders[epoch] = torch.randperm(len(self._dataset), generator=draw).tolist()
        return self._orders[epoch]


def batch_source(
    data: Any,
    *,
    seed: int,
    global_batch: int,
    shards: int,
    collate: Callable[[list[Any]], Any] | None,
) -> BatchSource:
    """Return the source for a map-style dataset or a function of (step, shard).

    Raise CostoptError for anything else.
    """
    if global_batch % shards:
        raise CostoptError(
            f"a global batch of {global_batch} cannot be cut into {shards} virtual shards",
            hint="choose virtual_shards so that it divides global_batch",
        )
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise CostoptError(
                "the data set is empty", hint="check where its files are", code="empty"
            )
        size = global_batch // shards
        return DatasetSamples(data, seed=seed, shard_size=size, shards=shards, collate=collate)
    if callable(data):
        return FunctionSamples(data)
    raise CostoptError(
        f"data of type {type(data).__name__} cannot be cut into virtual shards",
        hint="give a data set with __len__ and __getitem__, or a function of (step, shard)",
    )


def derive_seed(*numbers: int) -> int:
    """Return 63 bits that depend on the numbers alone: SHA-256, not Python's hash."""
    digest = hashlib.sha256(" ".join(map(str, numbers)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_generators(*numbers: int) -> None:
    """Seed the generators of Python, NumPy (if it is loaded), torch and CUDA."""
    seed = derive_seed(*numbers)
    # torch.manual_seed formats a traceback for each kind of device that is not in use yet.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


class ShardWorker:
    """Supplies the batches of the shards that this process owns, and collects their gradients."""

    def __init__(
        self,
        samples: BatchSource,
        layout: GradientLayout,
        reduction: Reduction,
        *,
        seed: int,
        data_ranks: int = 1,
        data_rank: int = 0,
    ) -> None:
        """A copy of the model on ``data_ranks`` processes computes as many shards at once, this
        one being that of ``data_rank``; the reduction counts them as one.
        """
        self._samples, self._layout, self._reduction = samples, layout, reduction
        self._seed = seed
        self._data_ranks, self._data_rank = data_ranks, data_rank
        self._step = 0
        self._handed: dict[int, tuple[int, Any]] = {}
        self._latest: int | None = None
        self._current: int | None = None

    def batches(self, step: int, position: int) -> Iterator[Any]:
        """Yield the batches still to be computed in a step; ``position`` numbers its data."""
        self._step = step
        if not self._reduction.accumulated_count():
            self._layout.drop_gradients()
        for shard in self._reduction.missing_shards():
            batch = self._samples.batch(position, self._number(shard))
            self._handed[id(batch)] = (shard, batch)
            self._latest = shard
            yield batch

    @contextmanager
    def compute(self, batch: Any) -> Iterator[None]:
        """Wrap forward and backward of one batch: draws depend on (seed, step, shard) alone."""
        shard, _ = self._handed.pop(id(batch), (self._latest, None))
        if shard is None or shard not in self._reduction.missing_shards():
            raise CostoptError(
                "job.microbatch was called with a batch that job.microbatches did not yield "
                "in this step",
                hint="for batch in job.microbatches():  with job.microbatch(batch): …",
                code="foreign_shard",
            )
        self._current = shard
        self._layout.begin_shard()
        seed_generators(self._seed, SHARD, self._step, self._number(shard))
        try:
            yield
        finally:
            self._current = None
        self._reduction.take(shard)

    def _number(self, shard: int) -> int:
        return shard * self._data_ranks + self._data_rank

    def observe(self, loss: float | Tensor) -> None:
        """Record the loss of the shard that is being computed."""
        if self._current is None:
            raise CostoptError(
                "job.observe was called outside of job.microbatch",
                hint="call it inside the block that computes the loss",
                code="outside_microbatch",
            )
        value = loss.detach() if isinstance(loss, Tensor) else loss
        self._reduction.observe(self._current, float(value))

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Leave the mean gradient of all shards on every rank. Raise PeerLostError if a peer is
        lost.
        """
        missing = self._reduction.missing_shards()
        if missing:
            raise CostoptError(
                f"step {self._step} ended without the gradients of its shards "
                f"{', '.join(map(str, missing))}",
                hint="for batch in job.microbatches():  with job.microbatch(batch): …",
                code="missing_shards",
            )
        decision = self._reduction.reduce(vote)
        self._handed.clear()
        return decision

    def clip_gradients(self, max_norm: float) -> None:
        """Scale the mean gradients down to this norm."""
        self._layout.clip_gradients(max_norm)

    def salvage(self) -> None:
        """Drop what was computed in a step whose reduction failed."""
        self._handed.clear()
        self._reduction.salvage()
