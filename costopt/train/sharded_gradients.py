"""Gradients of a sharded model: each process adds up its own shards' over the copies.

The copies add theirs in the tree of ``TreeReduction``, so that their number changes no bit. Within
a copy PyTorch adds them (a reduce-scatter in each backward pass), in an order that follows from the
mesh alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from costopt.domain.errors import CostoptError
from costopt.train.group import StepAgreement, StepVote
from costopt.train.reduction import GradientLayout, Reduction
from costopt.train.replica_groups import Replicas
from costopt.train.sharded_state import is_sharded, local_tensor


class ShardedGradientLayout(GradientLayout):
    """The gradients of this process' shards."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if self._statistics:
            raise CostoptError(
                "running statistics (BatchNorm) of a sharded model would differ on each process",
                hint="use another normalization, or track_running_stats=False",
            )

    def local(self, tensor: Tensor) -> Tensor:
        """Return this process' part."""
        return local_tensor(tensor).detach()

    def found(self) -> list[Tensor | None]:
        """Return a shard's gradients, placed as the parameters are."""
        for parameter in self.parameters:
            gradient, placements = parameter.grad, getattr(parameter, "placements", None)
            if is_sharded(gradient) and gradient.placements != placements:
                parameter.grad = gradient.redistribute(placements=placements)
        return super().found()

    def placed(self, part: Tensor, parameter: Tensor) -> Tensor:
        """Return the gradient as PyTorch places it."""
        if not is_sharded(parameter):
            return part
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            part,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )

    def clip_gradients(self, max_norm: float) -> None:
        """As for any model; PyTorch does not add norms of tensors on different meshes."""
        by_mesh: dict[Any, list[nn.Parameter]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                mesh = getattr(parameter, "device_mesh", None)
                by_mesh.setdefault(mesh, []).append(parameter)
        norms = [
            nn.utils.get_total_norm([p.grad for p in alike if p.grad is not None])
            for alike in by_mesh.values()
        ]
        whole = [norm.full_tensor() if is_sharded(norm) else norm for norm in norms]
        for alike in by_mesh.values():
            total = torch.linalg.vector_norm(torch.stack(whole))
            nn.utils.clip_grads_with_norm_(alike, max_norm, total)


class CopyReduction:
    """A reduction over the copies on which all processes of this copy agree."""

    def __init__(self, inner: Reduction, group: Replicas) -> None:
        self._inner, self._group = inner, group

    def missing_shards(self) -> list[int]:
        """Return the shards of this copy whose gradient has not been taken yet."""
        return self._inner.missing_shards()

    def accumulated_count(self) -> int:
        """Return how many shards' gradients have been taken in this step."""
        return self._inner.accumulated_count()

    def take(self, shard: int) -> None:
        """Take the shard's gradient, which is in the parameters."""
        self._inner.take(shard)

    def observe(self, shard: int, loss: float) -> None:
        """Record the loss of one shard, for the mean that every rank receives."""
        self._inner.observe(shard, loss)

    def salvage(self) -> None:
        """Drop what was taken, as after a reduction that failed."""
        self._inner.salvage()

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Leave the mean gradient in the parameters, on all processes of this copy or on none."""
        with self._group.agreeing():
            decision = self._inner.reduce(vote)
        own = math.inf if decision.loss is None else decision.loss
        observed = decision.loss is not None
        rows = self._group.unit.gather_numbers([float(observed), own, *decision.weights])
        found = [loss for seen, loss, *_ in rows if seen]
        loss = sum(found) / len(found) if found else None
        # Copies differ where the shards at any position do.
        copies = list(zip(*(digests for _, _, *digests in rows), strict=True))
        weights = tuple(float(copies.index(copy)) for copy in copies)
        return StepAgreement(decision.stops, decision.save, decision.part, loss, weights)
