"""The mean gradient by one all-reduce: for models too large to sum shard by shard, and for training
that does not need bit-equality.
"""

from __future__ import annotations

import torch

from costopt.train.group import RankGroup, StepAgreement, StepVote
from costopt.train.reduction import GradientLayout, owned_shards

VOTE_SUMS = 3
"""The numbers of a vote that are added up."""


class AllReduceReduction:
    """Gradients of a rank's shards accumulate in the parameters; ``reduce`` averages them.

    The same shards make a step at any world size, but the order of the sum depends on the size: the
    result differs in its last bits when that changes. For running statistics, a rank's last shard
    stands for all of them.
    """

    def __init__(self, group: RankGroup, layout: GradientLayout, shards: int) -> None:
        self._group, self._layout, self._shards = group, layout, shards
        self._room = max(shards, group.size)
        """One digest of weights per rank: these must not be added up."""
        self._taken: set[int] = set()
        self._losses: list[float] = []
        self._flat = self._vector()

    def missing_shards(self) -> list[int]:
        """Return the shards of this rank whose gradient has not been taken yet."""
        mine = owned_shards(self._group.rank, self._group.size, self._shards)
        return [shard for shard in mine if shard not in self._taken]

    def accumulated_count(self) -> int:
        """Return how many shards' gradients have been taken in this step."""
        return len(self._taken)

    def take(self, shard: int) -> None:
        """Record that the shard's gradient was added to the parameters'."""
        self._taken.add(shard)

    def observe(self, shard: int, loss: float) -> None:  # noqa: ARG002
        """Record the loss of one shard, for the mean that every rank receives."""
        self._losses.append(loss)

    def salvage(self) -> None:
        """After a failed reduction, drop everything: the shards must be computed again."""
        self._flat = self._vector()
        self._layout.discard()
        self._layout.drop_gradients()
        self._taken.clear()
        self._losses.clear()

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Average the gradients. Collective. Raise PeerLostError if a peer is lost."""
        found = self._layout.found()
        views = self._layout.views(self._flat)
        gradients = len(self._layout.parameters)
        for index, (view, value) in enumerate(zip(views, found, strict=True)):
            if value is None:
                view.zero_()
            else:
                view.copy_(value)
            if index >= gradients:
                view.mul_(len(self._taken))
        stop, save, part, weights = vote.numbers()
        votes = (stop, save if self._group.rank == 0 else 0.0, part)
        presence = [float(value is not None) for value in found]
        digests = [weights * (rank == self._group.rank) for rank in range(self._room)]
        tail = (*presence, *digests, *votes, sum(self._losses), float(len(self._losses)))
        self._flat[self._layout.length :].copy_(torch.tensor(tail))
        self._group.add(self._flat)
        self._group.fence()
        numbers = self._flat[self._layout.length :].tolist()
        self._flat[: self._layout.length].div_(self._shards)
        slots = self._layout.slots
        self._layout.load_gradients(views, [has > 0 for has in numbers[:slots]])
        self._taken.clear()
        self._losses.clear()
        held = tuple(numbers[slots : slots + self._group.size])
        stops, saves, parts, total, observed = numbers[slots + self._room :]
        loss = total / observed if observed else None
        # The sums of votes are whole numbers.
        return StepAgreement(round(stops), saves > 0, parts > 0, loss, held)

    def _vector(self) -> torch.Tensor:
        tail = self._layout.slots + self._room + VOTE_SUMS + 2
        return self._layout.vector(self._layout.length + tail).zero_()
