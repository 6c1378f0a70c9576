"""The sum over all virtual shards in one fixed order, whichever processes computed them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from costopt.train.group import VOTE_NUMBERS, RankGroup, StepAgreement, StepVote
from costopt.train.reduction import (
    GradientLayout,
    PartialSums,
    ReductionTree,
    TreeNode,
    covering_nodes,
    owned_shards,
)


class TreeReduction:
    """Takes gradients shard by shard; ``reduce`` leaves their mean in the parameters.

    Each rank adds locally what it can of the tree. Then the vector is cut into as many pieces as
    there are ranks: every rank gets its piece of all partial sums (all-to-all), adds them in the
    tree's order, and all gather the pieces. The bytes sent are those of a ring all-reduce if the
    shards of a rank form one subtree, that is, if the number of ranks is a power of two.
    """

    def __init__(self, group: RankGroup, layout: GradientLayout, shards: int) -> None:
        self._group = group
        self._layout = layout
        self._tree = ReductionTree(shards)
        self._sums: PartialSums[_Vector] = PartialSums(self._tree, self._add)
        self._spare: list[_Vector] = []
        self._buffers: dict[str, Tensor] = {}
        # Room to cut the vector into equal pieces, one for each rank.
        self._room = layout.length + max(shards, group.size)
        self._taken: set[int] = set()
        self._tail = _Tail(layout.slots, shards)

    def missing_shards(self) -> list[int]:
        """Return the shards of this rank whose gradient has not been taken yet."""
        return [s for s in self._owned() if s not in self._taken]

    def accumulated_count(self) -> int:
        """Return how many shards' gradients have been taken in this step."""
        return len(self._taken)

    def take(self, shard: int) -> None:
        """Take the gradients of one shard out of the parameters."""
        found = self._layout.found()
        self._tail.note(found)
        left = self._sums.left_of(shard) if shard % 2 else None
        if left is None:
            vector = self._fresh()
            _copy(vector.views, found)
            self._sums.add(TreeNode(0, shard), vector)
        else:
            _add(left.views, found)
            self._sums.absorb(TreeNode(0, shard))
        self._layout.drop_gradients()
        self._taken.add(shard)

    def observe(self, shard: int, loss: float) -> None:
        """Record the loss of one shard, for the mean that every rank receives."""
        self._tail.losses[shard] = loss

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Average the gradients. Collective. Raise PeerLostError; what was taken is then still
        here.
        """
        own = self._tail.tensor(vote, self._layout)
        if self._group.size == 1:
            tails = [own]
            ((_, total),) = self._sums.in_order()
            total.flat.div_(self._tree.shards)
        else:
            tails, total = self._meet(own)
        # While this process was suspended, the others may have gone on without it.
        self._group.fence()
        decision, present = _Tail.read(tails, self._layout.slots)
        self._layout.load_gradients(total.views, present)
        if self._group.size > 1:
            self._spare.append(total)
        self._clear()
        return decision

    def salvage(self) -> None:
        """After a failed reduction, drop what was taken, and its memory.

        A peer that was only disconnected may still be sent that memory; it must not be sent what
        comes next.
        """
        self._layout.discard()
        self._layout.drop_gradients()
        self._clear()
        self._spare.clear()
        self._buffers.clear()

    def _clear(self) -> None:
        self._spare += [vector for _, vector in self._sums.in_order()]
        self._sums.clear()
        self._taken.clear()
        self._tail = _Tail(self._layout.slots, self._tree.shards)

    def _meet(self, own: Tensor) -> tuple[list[Tensor], _Vector]:
        """Return all tails, and the mean."""
        group = self._group
        tails = [torch.empty_like(own) for _ in range(group.size)]
        # The votes travel while the sums are packed.
        collecting = group.collect(tails, own)
        piece = math.ceil(self._layout.length / group.size)
        nodes = [covering_nodes(self._tree, self._owned(rank)) for rank in range(group.size)]
        sent = self._packed(piece)
        received = self._buffer("received", piece * sum(map(len, nodes)))
        sent_sizes = [piece * len(nodes[group.rank])] * group.size
        group.settle(
            collecting,
            group.exchange(received, sent, [piece * len(each) for each in nodes], sent_sizes),
        )
        mean = self._added(received, [node for each in nodes for node in each], piece)
        total = self._fresh()
        group.concatenate(total.flat[: piece * group.size], mean.div_(self._tree.shards))
        return tails, total

    def _packed(self, piece: int) -> Tensor:
        """Return this rank's partial sums, cut so that what goes to one rank is contiguous."""
        size = self._group.size
        flats = [vector.flat[: piece * size] for _, vector in self._sums.in_order()]
        if len(flats) == 1:
            return flats[0]
        sent = self._buffer("sent", piece * size * len(flats))
        for number, flat in enumerate(flats):
            sent.view(size, -1, piece)[:, number].copy_(flat.view(size, piece))
        return sent

    def _buffer(self, name: str, length: int) -> Tensor:
        """Return the same memory in each step: pages that are touched for the first time cost
        several times what is done with them.
        """
        found = self._buffers.get(name)
        if found is None or len(found) < length:
            found = self._buffers[name] = self._layout.vector(length)
        return found[:length]

    def _added(self, received: Tensor, nodes: list[TreeNode], piece: int) -> Tensor:
        sums: PartialSums[Tensor] = PartialSums(self._tree, lambda left, right: left.add_(right))
        for node, part in zip(nodes, torch.split(received, piece), strict=True):
            sums.add(node, part)
        ((_, total),) = sums.in_order()
        return total

    def _owned(self, rank: int | None = None) -> range:
        rank = self._group.rank if rank is None else rank
        return owned_shards(rank, self._group.size, self._tree.shards)

    def _fresh(self) -> _Vector:
        return self._spare.pop() if self._spare else _Vector(self._layout, self._room)

    def _add(self, left: _Vector, right: _Vector) -> _Vector:
        left.flat.add_(right.flat)
        self._spare.append(right)
        return left


class _Vector:
    def __init__(self, layout: GradientLayout, room: int) -> None:
        self.flat = layout.vector(room).zero_()
        self.views = layout.views(self.flat)


class _Tail:
    """[votes | which parameters have a gradient | losses of shards, NaN if not observed] of one
    rank.
    """

    def __init__(self, parameters: int, shards: int) -> None:
        self._present = [False] * parameters
        self.losses: dict[int, float] = {}
        self._shards = shards

    def note(self, found: list[Tensor | None]) -> None:
        for index, gradient in enumerate(found):
            self._present[index] |= gradient is not None

    def tensor(self, vote: StepVote, layout: GradientLayout) -> Tensor:
        losses = [self.losses.get(shard, math.inf) for shard in range(self._shards)]
        observed = [float(shard in self.losses) for shard in range(self._shards)]
        numbers = [*vote.numbers(), *map(float, self._present), *observed, *losses]
        return torch.tensor(numbers, dtype=torch.float64, device=layout.device)

    @staticmethod
    def read(tails: list[Tensor], parameters: int) -> tuple[StepAgreement, list[bool]]:
        rows = [tail.tolist() for tail in tails]
        present = [any(row[VOTE_NUMBERS + i] for row in rows) for i in range(parameters)]
        rest = [row[VOTE_NUMBERS + parameters :] for row in rows]
        shards = len(rest[0]) // 2
        found = {s: row[shards + s] for row in rest for s in range(shards) if row[s]}
        # In the order of the shards, on which a sum of floats depends.
        mean = sum(found[s] for s in sorted(found)) / len(found) if found else None
        return StepAgreement.of([row[:VOTE_NUMBERS] for row in rows], mean), present


def _copy(views: list[Tensor], found: list[Tensor | None]) -> None:
    slots, values, empty = _paired(views, found)
    if slots:
        torch._foreach_copy_(slots, values)
    for slot in empty:
        slot.zero_()


def _add(views: list[Tensor], found: list[Tensor | None]) -> None:
    """A missing gradient is a zero that is added: -0.0 + 0.0 is not -0.0."""
    slots, values, empty = _paired(views, found)
    if slots:
        torch._foreach_add_(slots, values)
    for slot in empty:
        slot.add_(0.0)


def _paired(
    views: list[Tensor], found: list[Tensor | None]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the slots that get a value, those values, and the other slots.

    One call for all tensors of a list saves a small model the time of many calls.
    """
    pairs = [(view, value) for view, value in zip(views, found, strict=True) if value is not None]
    empty = [view for view, value in zip(views, found, strict=True) if value is None]
    return [slot for slot, _ in pairs], [value for _, value in pairs], empty
