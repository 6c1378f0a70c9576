"""Whether the boxes that all ranks wrote are a whole state: sorted once, compared as columns.

Neighbours in a sorted column prove the grid of a mesh. Tensors for which they prove nothing are
looked at box by box. Only this module and who writes which box need numpy: processes that just
write or list checkpoints start faster without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.sharded.boxes import TensorBox, untiled_reason
from costopt.checkpoint.sharded.index import ITEM_BYTES, ShardIndex
from costopt.checkpoint.sharded.writers import Column


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """The boxes of a layout as columns, a row each: tensor, offset, and the box by dimension.

    What a tensor has less of dimensions than others is filled with starts of 0 and sizes of 1.
    """

    tensors: tuple[TensorSpec, ...]
    numbers: Column
    offsets: Column
    starts: Column
    sizes: Column

    @classmethod
    def decode(cls, data: bytes) -> BoxColumns:
        """Return the columns of a layout's document. Raise ValueError if it is not one."""
        head, _, rest = data.partition(b"\n")
        tensors, dimensions = _tensors(head)
        if len(rest) % 8:
            raise ValueError("the index holds no layout: its boxes are cut short")
        flat = np.frombuffer(rest, dtype="<i8")
        count = int(flat[0]) if len(flat) else -1
        numbers, offsets, flat = np.split(flat[1:], [count, 2 * count])
        if count < 0 or not ((numbers >= 0) & (numbers < len(tensors))).all():
            raise ValueError("the index holds no layout: a box is of no tensor")
        there = np.arange(max(dimensions, default=0)) < np.array(dimensions, int)[numbers, None]
        if len(flat) != 2 * there.sum():
            raise ValueError("the index holds no layout: its boxes have other dimensions")
        starts, sizes = np.zeros(there.shape, int), np.ones(there.shape, int)
        starts[there], sizes[there] = np.split(flat, 2)
        return cls(tensors, numbers, offsets, starts, sizes)

    def box(self, row: int) -> TensorBox:
        """Return one box."""
        end = len(self.tensors[self.numbers[row]].shape)
        starts, sizes = self.starts[row, :end], self.sizes[row, :end]
        return TensorBox(tuple(starts.tolist()), tuple(sizes.tolist()))


@lru_cache(4)
def _tensors(head: bytes) -> tuple[tuple[TensorSpec, ...], tuple[int, ...]]:
    """Return tensors and their dimensions; the ranks of a gang mostly list the same."""
    try:
        tensors = tuple(TensorSpec(name, dtype, tuple(s)) for name, dtype, s in json.loads(head))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the index holds no layout: {error}") from error
    return tensors, tuple(len(tensor.shape) for tensor in tensors)


def incomplete_reason(layouts: Iterable[bytes], streams: Sequence[int]) -> str | None:
    """Return why the ranks' boxes are not a whole state, or None if they tile every tensor.

    ``layouts`` are the ranks' documents, ``streams`` the bytes of tensors that each wrote. Raise
    ValueError if a document is not valid.
    """
    ranks = [BoxColumns.decode(layout) for layout in layouts]
    specs: dict[str, int] = {}
    tensors: list[TensorSpec] = []
    tables: dict[int, Column] = {}
    for rank, columns in enumerate(ranks):
        if id(columns.tensors) in tables:
            continue
        for tensor in columns.tensors:
            if specs.setdefault(tensor.name, len(specs)) == len(tensors):
                tensors.append(tensor)
            if tensors[specs[tensor.name]] != tensor:
                return f"rank {rank} has another type or shape of {tensor.name} than others"
            if tensor.dtype not in ITEM_BYTES:
                return f"{tensor.name} has the unsupported type {tensor.dtype}"
        table = [specs[tensor.name] for tensor in columns.tensors]
        tables[id(columns.tensors)] = np.array(table, dtype=int)
    items = np.array([ITEM_BYTES[tensor.dtype] for tensor in tensors], dtype=int)
    numbers = [tables[id(columns.tensors)][columns.numbers] for columns in ranks]
    for rank, (columns, own, stream_bytes) in enumerate(zip(ranks, numbers, streams, strict=True)):
        ends = columns.offsets + columns.sizes.prod(axis=1) * items[own]
        short = np.flatnonzero((columns.offsets < 0) | (ends > stream_bytes))
        if len(short):
            return f"rank {rank} did not write all of its part of {tensors[own[short[0]]].name}"
    return _untiled_reason(tensors, ranks, numbers)


def _untiled_reason(
    tensors: Sequence[TensorSpec], ranks: Sequence[BoxColumns], numbers: Sequence[Column]
) -> str | None:
    width = max((len(tensor.shape) for tensor in tensors), default=0)
    every = np.concatenate(numbers) if numbers else np.zeros(0, int)
    starts = np.concatenate([_widened(columns.starts, width, 0) for columns in ranks])
    sizes = np.concatenate([_widened(columns.sizes, width, 1) for columns in ranks])
    shapes = np.ones((len(tensors), width), int)
    for shape, tensor in zip(shapes, tensors, strict=True):
        shape[: len(tensor.shape)] = tensor.shape
    beyond = ((starts < 0) | (sizes < 0) | (starts + sizes > shapes[every])).any(axis=1)
    volumes = sizes.prod(axis=1)
    # Boxes within a tensor that do not overlap tile it if their volumes sum to its own.
    held = np.bincount(every, volumes, len(tensors))
    suspects = {*np.flatnonzero(held != shapes.prod(axis=1)), *every[beyond]}
    filled = np.flatnonzero(volumes > 0)
    suspects |= _overlapping(every[filled], starts[filled], sizes[filled])
    for number in sorted(suspects, key=lambda number: tensors[number].name):
        boxes = list(_boxes(ranks, numbers, int(number)))
        reason = untiled_reason(tensors[number], boxes)
        if reason is not None:
            return reason
    return None


def _overlapping(tensors: Column, starts: Column, sizes: Column) -> set[int]:
    """Return the tensors whose boxes may overlap.

    Boxes of a mesh form a grid: those with the same interval on one axis are compared on the next.
    """
    suspects: set[int] = set()
    order = np.argsort(tensors, kind="stable")
    groups = tensors[order]
    for axis in range(starts.shape[1]):
        begin, size = starts[order, axis], sizes[order, axis]
        same = groups[1:] == groups[:-1]
        steps = np.diff(begin)
        # Ranks write in the order of the mesh, so that most columns are sorted already.
        if (same & ((steps < 0) | ((steps == 0) & (np.diff(size) < 0)))).any():
            again = np.lexsort((size, begin, groups))
            order, begin, size = order[again], begin[again], size[again]
            steps = np.diff(begin)
        equal = same & (steps == 0) & (np.diff(size) == 0)
        suspects.update(tensors[order[1:][same & ~equal & (steps < size[:-1])]])
        # Only boxes with the same interval on this axis can overlap without differing on the next.
        groups = np.concatenate([[0], np.cumsum(~equal)])[: len(order)]
    suspects.update(tensors[order[1:][groups[1:] == groups[:-1]]])
    return suspects


def _widened(column: Column, width: int, filling: int) -> Column:
    missing = width - column.shape[1]
    return np.pad(column, ((0, 0), (0, missing)), constant_values=filling) if missing else column


def _boxes(
    ranks: Iterable[BoxColumns], numbers: Iterable[Column], number: int
) -> Iterator[TensorBox]:
    for columns, own in zip(ranks, numbers, strict=True):
        yield from map(columns.box, np.flatnonzero(own == number).tolist())


def all_tensors(indexes: Iterable[ShardIndex]) -> tuple[TensorSpec, ...]:
    """Return the tensors that ranks list, sorted. Raise ValueError if a layout is not valid."""
    lists = {BoxColumns.decode(data).tensors for data in {i.layout_data for i in indexes}}
    return tuple(sorted({tensor for each in lists for tensor in each}))
