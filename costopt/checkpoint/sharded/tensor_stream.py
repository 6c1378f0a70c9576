"""Whole tensors of a sharded checkpoint in order, a bounded run of verified bytes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import TensorBox, whole_box
from costopt.checkpoint.sharded.index import ITEM_BYTES
from costopt.checkpoint.sharded.source import ReadWindow, ShardSource, TensorPiece
from costopt.domain.errors import CheckpointError

BATCH_BYTES = 32 << 20
"""Of tensors at once; as much again is held of what was read."""
ITEM_TYPES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


class TensorSlab(NamedTuple):
    """Rows of a tensor that are neighbours in memory; slabs of a tensor come in their order."""

    name: str
    box: TensorBox
    data: memoryview


def open_source(place: CheckpointRepository, name: CheckpointName) -> ShardSource:
    """Return a sharded checkpoint with its indexes verified.

    Raise CheckpointError if it is not valid, or not sharded.
    """
    try:
        manifest = place.manifest(name)
        if manifest.shards is None:
            raise CheckpointError(
                f"{place.path(name)} was not saved sharded",
                hint="load it with costopt.train.Checkpointer",
                code="not_sharded",
            )
        return ShardSource(place, name, manifest, place.indexes(name, manifest.shards))
    except ValueError as error:
        raise CheckpointError(f"{place.path(name)}: {error}", code="damaged") from error


def stream_tensors(source: ShardSource, names: Iterable[str]) -> Iterator[TensorSlab]:
    """Yield these tensors in this order. Raise ValueError if a byte is damaged or missing."""
    waiting: list[tuple[str, TensorBox]] = []
    size_bytes = 0
    for name in names:
        tensor = source.tensors[name]
        whole, item = whole_box(tensor.shape), ITEM_BYTES[tensor.dtype]
        for slab in whole.slabs(whole, BATCH_BYTES // item) if whole.volume else ():
            waiting.append((name, slab))
            size_bytes += slab.volume * item
            if size_bytes >= BATCH_BYTES:
                yield from _read(source, waiting)
                waiting, size_bytes = [], 0
    yield from _read(source, waiting)


def _read(source: ShardSource, slabs: Sequence[tuple[str, TensorBox]]) -> Iterator[TensorSlab]:
    targets: list[np.ndarray[Any, Any]] = []
    pieces: list[tuple[TensorPiece, int]] = []
    for number, (name, box) in enumerate(slabs):
        item = ITEM_BYTES[source.tensors[name].dtype]
        targets.append(np.empty(box.sizes, dtype=ITEM_TYPES[item]))
        pieces += [(piece, number) for piece in source.pieces({name: box})]
    pieces.sort(key=lambda each: each[0].span)
    done = 0
    for window, last in source.windows((piece.span for piece, _ in pieces), BATCH_BYTES):
        buffer = bytearray(window.size_bytes)
        source.read(window, memoryview(buffer), 0, 1)
        while done < len(pieces) and pieces[done][0].span <= last:
            piece, number = pieces[done]
            _place(piece, slabs[number][1], targets[number], window, buffer)
            done += 1
    for (name, box), target in zip(slabs, targets, strict=True):
        yield TensorSlab(name, box, target.reshape(-1).view("u1").data)


def _place(
    piece: TensorPiece,
    box: TensorBox,
    target: np.ndarray[Any, Any],
    window: ReadWindow,
    buffer: bytearray,
) -> None:
    item = target.dtype.itemsize
    count = (piece.span.end - piece.span.begin) // item
    flat = np.frombuffer(buffer, target.dtype, count, window.offset(piece.span))
    strides = [stride * item for stride in piece.strides]
    found = np.lib.stride_tricks.as_strided(flat, piece.box.sizes, strides)
    places = zip(piece.box.starts, box.starts, piece.box.sizes, strict=True)
    target[tuple(slice(at - own, at - own + size) for at, own, size in places)] = found
