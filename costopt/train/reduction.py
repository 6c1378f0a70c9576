"""The reduction of a step: its protocol, the gradients' layout, and the tree over virtual shards.

One reduction per step sums the gradients, and with them what all ranks agree on. Virtual shards cut
a step's batch into a number of parts that never changes; one fixed tree adds their gradients,
whichever process computes which. Floating-point addition is not associative, so a sum over the
processes depends on how many there are. Here the order is that of the shards: neighbors first, then
neighbors of those. a + b = b + a holds bit for bit; only the bracketing matters, and that is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from costopt.domain.errors import CostoptError
from costopt.train.group import StepAgreement, StepVote


class Reduction(Protocol):
    """Receives the gradients shard by shard. Only ``reduce`` raises."""

    def missing_shards(self) -> list[int]:
        """Return the shards of this rank whose gradient has not been taken yet."""
        ...

    def accumulated_count(self) -> int:
        """Return how many shards' gradients have been taken in this step."""
        ...

    def take(self, shard: int) -> None:
        """Take the shard's gradient, which is in the parameters."""
        ...

    def observe(self, shard: int, loss: float) -> None:
        """Record the loss of one shard, for the mean that every rank receives."""
        ...

    def salvage(self) -> None:
        """Drop what was taken, as after a reduction that failed."""
        ...

    def reduce(self, vote: StepVote) -> StepAgreement:
        """Leave the step's mean gradient in the parameters, the same on every rank.

        Collective. Raise PeerLostError if a peer is lost.
        """
        ...


class GradientLayout:
    """Where each number that a step sums is in one flat vector.

    The gradients of a model's trainable parameters come first, then the running statistics of its
    normalizations, in an order that never changes. Running statistics (BatchNorm) of a step are the
    mean over the shards of what each computed from those before the step. Sums are taken in
    float32, or float64 for a parameter of that type.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, parameter in named:
            if not parameter.dtype.is_floating_point:
                raise CostoptError(
                    f"gradients of {name} ({parameter.dtype}) cannot be summed in shards",
                    hint="use real parameters: virtual shards support no others",
                )
        self.parameters = [parameter for _, parameter in named]
        tracked = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
        self._statistics = [
            buffer
            for module in tracked
            for buffer in (module.running_mean, module.running_var)
            if buffer is not None
        ]
        self._counts = [
            module.num_batches_tracked
            for module in tracked
            if module.num_batches_tracked is not None
        ]
        self._tensors: list[Tensor] = [*map(self.local, self.parameters), *self._statistics]
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.length = sum(self._sizes)
        wide = any(t.dtype is torch.float64 for t in self._tensors)
        self.dtype = torch.float64 if wide else torch.float32
        self.device = self.parameters[0].device if named else torch.device("cpu")
        self._before: list[Tensor] = []

    def local(self, tensor: Tensor) -> Tensor:
        """Return this process' part of a parameter or gradient: all of it."""
        return tensor

    def placed(self, part: Tensor, parameter: Tensor) -> Tensor:  # noqa: ARG002
        """Return the gradient of ``parameter`` of which ``part`` is this process' part."""
        return part

    @property
    def slots(self) -> int:
        """Return how many tensors the vector holds."""
        return len(self._tensors)

    def vector(self, length: int) -> Tensor:
        """Return a flat vector of at least the layout's length, with undefined content."""
        return torch.empty(max(length, self.length), dtype=self.dtype, device=self.device)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the slot of each tensor."""
        slots = torch.split(vector[: self.length], self._sizes)
        return [slot.view_as(t) for slot, t in zip(slots, self._tensors, strict=True)]

    def begin_shard(self) -> None:
        """Reset the statistics: every shard of a step starts from the same ones."""
        if self._before:
            for buffer, before in zip(
                [*self._statistics, *self._counts], self._before, strict=True
            ):
                buffer.copy_(before)
        else:
            self._before = [buffer.clone() for buffer in [*self._statistics, *self._counts]]

    def found(self) -> list[Tensor | None]:
        """Return a shard's gradients, None for a parameter without one, then its statistics."""
        gradients = (parameter.grad for parameter in self.parameters)
        return [*(None if g is None else self.local(g) for g in gradients), *self._statistics]

    def drop_gradients(self) -> None:
        """Remove the gradients from the parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def load_gradients(self, views: list[Tensor], present: list[bool]) -> None:
        """Load the slots into gradients, None if no rank had any, and statistics."""
        count = len(self.parameters)
        for parameter, view, has in zip(self.parameters, views[:count], present, strict=False):
            parameter.grad = self.placed(view.to(parameter.dtype), parameter) if has else None
        for buffer, view in zip(self._statistics, views[count:], strict=True):
            buffer.copy_(view)
        if self._before:
            for counter, before in zip(
                self._counts, self._before[len(self._statistics) :], strict=True
            ):
                # Every shard counted from `before`: the shards of a step are one batch.
                counter.copy_(before + 1)
        self._before = []

    def clip_gradients(self, max_norm: float) -> None:
        """Scale the gradients down to this norm of all of them together."""
        nn.utils.clip_grad_norm_(self.parameters, max_norm)

    def discard(self) -> None:
        """Restore the statistics from before the step."""
        if self._before:
            self.begin_shard()
        self._before = []


Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, order=True)
class TreeNode:
    """The shards [place · 2^level, (place + 1) · 2^level) of the tree, as far as they exist."""

    level: int
    place: int

    @property
    def parent(self) -> TreeNode:
        """Return the node into which this one is added."""
        return TreeNode(self.level + 1, self.place // 2)

    @property
    def sibling(self) -> TreeNode:
        """Return the node to which this one is added."""
        # The two children of a node differ in the lowest bit of their place.
        return TreeNode(self.level, self.place ^ 1)


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """The binary tree over ``shards`` leaves; one without a sibling passes to its parent as is."""

    shards: int

    @property
    def root(self) -> TreeNode:
        """Return the node of all shards."""
        return TreeNode((self.shards - 1).bit_length(), 0)

    def exists(self, node: TreeNode) -> bool:
        """Whether the node contains any shard."""
        return node.place << node.level < self.shards


def owned_shards(rank: int, size: int, shards: int) -> range:
    """Return the shards of a rank: contiguous, evenly divided up to a difference of one."""
    # Contiguous, so that a rank adds most of the tree without the others.
    return range(shards * rank // size, shards * (rank + 1) // size)


def covering_nodes(tree: ReductionTree, shards: range) -> list[TreeNode]:
    """Return the fewest nodes that contain exactly these contiguous shards, in order."""
    sums: PartialSums[None] = PartialSums(tree, lambda *_: None)
    for shard in shards:
        sums.add(TreeNode(0, shard), None)
    return [node for node, _ in sums.in_order()]


class PartialSums(Generic[Part]):
    """Adds parts in the tree's order, as early as it can; holds at most about log2 of them.

    ``add(left, right)`` may overwrite and return ``left``.
    """

    def __init__(self, tree: ReductionTree, add: Callable[[Part, Part], Part]) -> None:
        self._tree = tree
        self._add = add
        self._parts: dict[TreeNode, Part] = {}

    def add(self, node: TreeNode, part: Part) -> None:
        """Add the sum of a node, and complete every node above that it completes."""
        while node != self._tree.root:
            sibling = node.sibling
            if not self._tree.exists(sibling):
                node = node.parent
            elif sibling in self._parts:
                other = self._parts.pop(sibling)
                # Left is the one of the earlier shards, as `add` may overwrite it.
                pair = (other, part) if sibling < node else (part, other)
                node, part = node.parent, self._add(*pair)
            else:
                break
        self._parts[node] = part

    def absorb(self, node: TreeNode) -> None:
        """Continue from a node whose part the caller has added to its sibling's."""
        self.add(node.parent, self._parts.pop(node.sibling))

    def left_of(self, shard: int) -> Part | None:
        """Return the part to which the shard's own would be added at once, or None."""
        return self._parts.get(TreeNode(0, shard).sibling)

    def in_order(self) -> Iterator[tuple[TreeNode, Part]]:
        """Yield the nodes and parts held, in the order of their shards."""
        return iter(sorted(self._parts.items(), key=lambda item: item[0].place << item[0].level))

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()
