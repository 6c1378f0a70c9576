"""One reduction a step: the gradients, and with them what all ranks agree on."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from costopt.train.group import Group
from costopt.train.vote import VOTE_NUMBERS, Decision, Vote


class Reduction(Protocol):
    """Leaves the step's mean gradient in the parameters, the same on every rank."""

    def reduce(self, vote: Vote) -> Decision:
        """Collective. Raises PeerLostError."""
        ...


class ShardReduction(Reduction, Protocol):
    """Is given the gradients shard by shard. Raises nothing but in ``reduce``."""

    def missing(self) -> list[int]:
        """The shards of this rank whose gradient has not been taken yet."""
        ...

    def taken(self) -> int:
        """How many shards' gradients have been taken in this step."""
        ...

    def take(self, shard: int) -> None:
        """The shard's gradient is in the parameters."""
        ...

    def observe(self, shard: int, loss: float) -> None:
        """The loss of one shard, for the mean that all will know."""
        ...

    def forget(self) -> None:
        """Drop what was taken."""
        ...

    def salvage(self) -> None:
        """Drop what was taken after a reduction that broke."""
        ...


class MeanReduction:
    """The mean of the ranks' gradients, and a decision, in one all-reduce of a fixed layout.

    The layout [gradients | who has a gradient | votes] never changes, so neither does the order
    of the sums: at one world size the result is the same to the bit, however often the gang was
    formed anew. (DDP rebuilds its buckets after the first step and with them the order.) A model
    in DDP has averaged its gradients already; only the votes are reduced then.
    """

    def __init__(self, group: Group, model: nn.Module) -> None:
        self._group = group
        wrapped = isinstance(model, DistributedDataParallel)
        alone = wrapped or group.size == 1
        self._parameters = [p for p in model.parameters() if p.requires_grad and not alone]
        sizes = [p.numel() for p in self._parameters]
        count = len(sizes)
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._flat = torch.zeros(
            sum(sizes) + count + VOTE_NUMBERS, dtype=torch.float32, device=device
        )
        gradients, self._presence, self._votes = torch.split(
            self._flat, [sum(sizes), count, VOTE_NUMBERS]
        )
        self._slots = [
            slot.view_as(parameter)
            for slot, parameter in zip(torch.split(gradients, sizes), self._parameters, strict=True)
        ]

    def reduce(self, vote: Vote) -> Decision:
        """Average the gradients in place. A parameter without a gradient anywhere keeps none."""
        if self._group.size == 1:
            return Decision.of([vote.numbers()])
        self._fill(vote)
        self._group.add(self._flat)
        counts = self._presence.tolist()
        for parameter, slot, count in zip(self._parameters, self._slots, counts, strict=True):
            if count:
                self._give(parameter, slot / self._group.size)
        return Decision.of([self._votes.tolist()])

    def _fill(self, vote: Vote) -> None:
        self._flat.zero_()
        for index, (parameter, slot) in enumerate(zip(self._parameters, self._slots, strict=True)):
            if parameter.grad is not None:
                slot.copy_(parameter.grad)
                self._presence[index] = 1.0
        stop, save, part = vote.numbers()
        own = (stop, save if self._group.rank == 0 else 0.0, part)
        self._votes.copy_(torch.tensor(own))

    def _give(self, parameter: nn.Parameter, mean: Tensor) -> None:
        if parameter.grad is None:
            parameter.grad = mean.to(parameter.dtype)
        else:
            parameter.grad.copy_(mean)
