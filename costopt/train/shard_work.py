"""The shards that this process computes in a step, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from costopt.domain.errors import CostoptError
from costopt.train.layout import GradientLayout
from costopt.train.reduction import Reduction
from costopt.train.samples import SHARD, BatchSource, seed_generators
from costopt.train.vote import StepAgreement, StepVote


class ShardWorker:
    """Hands out the batches of the shards that are owned now, and collects their gradients."""

    def __init__(
        self, samples: BatchSource, layout: GradientLayout, reduction: Reduction, *, seed: int
    ) -> None:
        self._samples, self._layout, self._reduction = samples, layout, reduction
        self._seed = seed
        self._step = 0
        self._handed: dict[int, tuple[int, Any]] = {}
        self._latest: int | None = None
        self._current: int | None = None

    def batches(self, step: int, position: int) -> Iterator[Any]:
        """The batches still to compute of a step; ``position`` numbers its data."""
        self._step = step
        if not self._reduction.accumulated_count():
            self._layout.drop_gradients()
        for shard in self._reduction.missing_shards():
            batch = self._samples.batch(position, shard)
            self._handed[id(batch)] = (shard, batch)
            self._latest = shard
            yield batch

    @contextmanager
    def compute(self, batch: Any) -> Iterator[None]:
        """Around forward and backward of one batch: draws follow from (seed, step, shard)."""
        shard, _ = self._handed.pop(id(batch), (self._latest, None))
        if shard is None or shard not in self._reduction.missing_shards():
            raise CostoptError(
                "job.microbatch was given what job.microbatches did not hand out in this step",
                hint="for batch in job.microbatches():  with job.microbatch(batch): …",
                code="foreign_shard",
            )
        self._current = shard
        self._layout.begin_shard()
        seed_generators(self._seed, SHARD, self._step, shard)
        try:
            yield
        finally:
            self._current = None
        self._reduction.take(shard)

    def observe(self, loss: float | Tensor) -> None:
        """The loss of the shard that is being computed."""
        if self._current is None:
            raise CostoptError(
                "job.observe was called outside of job.microbatch",
                hint="call it inside the block that computes the loss",
                code="outside_microbatch",
            )
        value = loss.detach() if isinstance(loss, Tensor) else loss
        self._reduction.observe(self._current, float(value))

    def reduce(self, vote: StepVote) -> StepAgreement:
        """The mean gradient of all shards, on every rank. Raises PeerLostError."""
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

    def salvage(self) -> None:
        """Drop what was computed of a step whose reduction broke."""
        self._handed.clear()
        self._reduction.salvage()
