"""One reduction a step: the gradients, and with them what all ranks agree on."""

from __future__ import annotations

from typing import Protocol

from costopt.train.vote import StepAgreement, StepVote


class Reduction(Protocol):
    """Is given the gradients shard by shard. Raises nothing but in ``reduce``."""

    def missing_shards(self) -> list[int]:
        """The shards of this rank whose gradient has not been taken yet."""
        ...

    def accumulated_count(self) -> int:
        """How many shards' gradients have been taken in this step."""
        ...

    def take(self, shard: int) -> None:
        """The shard's gradient is in the parameters."""
        ...

    def observe(self, shard: int, loss: float) -> None:
        """The loss of one shard, for the mean that all will know."""
        ...

    def salvage(self) -> None:
        """Drop what was taken, as after a reduction that broke."""
        ...

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Leave the step's mean gradient in the parameters, the same on every rank.

        Collective. Raises PeerLostError.
        """
        ...
