"""Virtual shards: a step's batch cut into a number of parts that never changes, and the one tree
in which what comes of them is added, whoever computes which.

Floating-point addition does not associate, so a sum over the processes depends on how many there
are. Here the order is that of the shards: neighbours first, then neighbours of those. a + b = b + a
holds bit for bit; only the bracketing matters, and that is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, order=True)
class TreeNode:
    """The shards [place · 2^level, (place + 1) · 2^level) of the tree, as far as there are any."""

    level: int
    place: int

    @property
    def parent(self) -> TreeNode:
        """The node that this one is added into."""
        return TreeNode(self.level + 1, self.place // 2)

    @property
    def sibling(self) -> TreeNode:
        """The node that this one is added to."""
        return TreeNode(self.level, self.place ^ 1)


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """The binary tree over ``shards`` leaves; one without a sibling passes to its parent as is."""

    shards: int

    @property
    def root(self) -> TreeNode:
        """The node of all shards."""
        return TreeNode((self.shards - 1).bit_length(), 0)

    def exists(self, node: TreeNode) -> bool:
        """Whether the node holds any shard."""
        return node.place << node.level < self.shards


def owned_shards(rank: int, size: int, shards: int) -> range:
    """The shards of a rank: contiguous, and as many as of any other, or one more or less."""
    return range(shards * rank // size, shards * (rank + 1) // size)


def covering_nodes(tree: ReductionTree, shards: range) -> list[TreeNode]:
    """The fewest nodes that hold exactly these contiguous shards, in order."""
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
        """Take in the sum of a node, and of every node above that this completes."""
        while node != self._tree.root:
            sibling = node.sibling
            if not self._tree.exists(sibling):
                node = node.parent
            elif sibling in self._parts:
                other = self._parts.pop(sibling)
                pair = (other, part) if sibling < node else (part, other)
                node, part = node.parent, self._add(*pair)
            else:
                break
        self._parts[node] = part

    def absorb(self, node: TreeNode) -> None:
        """The node's part has been added to its sibling's by the caller: carry on from there."""
        self.add(node.parent, self._parts.pop(node.sibling))

    def left_of(self, shard: int) -> Part | None:
        """The part that the shard's own would be added to at once, if it is here."""
        return self._parts.get(TreeNode(0, shard).sibling)

    def in_order(self) -> Iterator[tuple[TreeNode, Part]]:
        """What is held, by the shards it covers."""
        return iter(sorted(self._parts.items(), key=lambda item: item[0].place << item[0].level))

    def clear(self) -> None:
        """Forget everything."""
        self._parts.clear()
