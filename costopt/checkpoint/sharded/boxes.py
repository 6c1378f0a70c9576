"""Boxes: the rectangular parts of tensors that ranks hold, and what they must do together.

The boxes of a checkpoint tile each tensor: every element lies in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from costopt.checkpoint.manifest import TensorSpec

MAX_PAIRS = 4_000_000
"""Boxes of which no grid is known are compared in pairs, but no more of them than this."""


class TensorBox(NamedTuple):
    """A part of a tensor: where it begins and how far it reaches, by dimension."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def volume(self) -> int:
        """Return the number of elements."""
        return prod(self.sizes)

    def intersect(self, other: TensorBox) -> TensorBox | None:
        """Return the elements that both have; None if there are none."""
        starts, sizes = [], []
        for start, size, begin, extent in zip(*self, *other, strict=True):
            first, end = max(start, begin), min(start + size, begin + extent)
            if end <= first:
                return None
            starts.append(first)
            sizes.append(end - first)
        return TensorBox(tuple(starts), tuple(sizes))

    def strides(self) -> tuple[int, ...]:
        """Return the distance of neighbours in each dimension, in elements in row-major order."""
        return tuple(prod(self.sizes[number + 1 :]) for number in range(len(self.sizes)))

    def extent(self, inner: TensorBox) -> tuple[int, int]:
        """Return where the elements of ``inner`` begin and end among this box's, in order."""
        strides = self.strides()
        first = sum((i - o) * s for i, o, s in zip(inner.starts, self.starts, strides, strict=True))
        last = first + sum((size - 1) * s for size, s in zip(inner.sizes, strides, strict=True))
        return first, last + 1

    def slabs(self, within: TensorBox, max_elements: int) -> Iterator[TensorBox]:
        """Yield this box in pieces whose extent in ``within`` is at most ``max_elements``.

        Single rows of the last dimension are not cut any more.
        """
        first, end = within.extent(self)
        axis = next((number for number, size in enumerate(self.sizes) if size > 1), None)
        if end - first <= max_elements or axis is None:
            yield self
            return
        rows = max(1, max_elements // within.strides()[axis])
        for begin in range(0, self.sizes[axis], rows):
            count = min(rows, self.sizes[axis] - begin)
            starts = (*self.starts[:axis], self.starts[axis] + begin, *self.starts[axis + 1 :])
            piece = TensorBox(starts, (*self.sizes[:axis], count, *self.sizes[axis + 1 :]))
            yield from piece.slabs(within, max_elements)


def whole_box(shape: tuple[int, ...]) -> TensorBox:
    """Return the box that is a whole tensor."""
    return TensorBox((0,) * len(shape), shape)


def untiled_reason(tensor: TensorSpec, boxes: Sequence[TensorBox]) -> str | None:
    """Return why the boxes do not tile the tensor, or None if they do."""
    whole = whole_box(tensor.shape)
    boxes = [box for box in boxes if box.volume]
    if any(len(box.starts) != len(box.sizes) for box in boxes) or any(
        len(box.sizes) != len(tensor.shape) or box.intersect(whole) != box for box in boxes
    ):
        return f"a part of {tensor.name} reaches beyond its shape {list(tensor.shape)}"
    held = sum(box.volume for box in boxes)
    if held < whole.volume:
        return f"{whole.volume - held} of the {whole.volume} elements of {tensor.name} are missing"
    if held > whole.volume or not _are_disjoint(boxes):
        return f"parts of {tensor.name} overlap"
    return None


def _are_disjoint(boxes: Sequence[TensorBox]) -> bool:
    if len(boxes) ** 2 > MAX_PAIRS:
        return False
    return not any(one.intersect(other) for n, one in enumerate(boxes) for other in boxes[n + 1 :])


class HeldBox(NamedTuple):
    """A box that a rank holds; other ranks may hold the same."""

    tensor: TensorSpec
    box: TensorBox
    size_bytes: int
