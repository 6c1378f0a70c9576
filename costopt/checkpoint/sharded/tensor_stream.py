"""Whole tensors of a sharded checkpoint in order, a bounded run of verified bytes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import TensorBox, whole_box
from costopt.checkpoint.sharded.index import ITEM_BYTES
from costopt.checkpoint.sharded.source import (
    ALIGNMENT,
    MIN_DIRECT_BYTES,
    ByteSpan,
    ShardSource,
    TensorPiece,
)
from costopt.domain.errors import CheckpointError

BATCH_BYTES = 16 << 20
"""Of tensors at once; as much again is read meanwhile, some of it through a window of that size."""
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
    """Yield these tensors in this order, while the next are read. A slab is valid for its turn.

    Raise ValueError if a byte is damaged or missing.
    """
    with ThreadPoolExecutor(1) as pool:
        before: Future[list[TensorSlab]] | None = None
        # Fresh memory for each batch would cost as much as reading it.
        memories = cycle([np.empty(2 * BATCH_BYTES + ALIGNMENT, "u1") for _ in range(2)])
        for batch in _batches(source, names):
            found = pool.submit(_read, source, batch, next(memories))
            yield from () if before is None else before.result()
            before = found
        yield from () if before is None else before.result()


def _batches(source: ShardSource, names: Iterable[str]) -> Iterator[list[tuple[str, TensorBox]]]:
    waiting: list[tuple[str, TensorBox]] = []
    size_bytes = 0
    for name in names:
        tensor = source.tensors[name]
        whole, item = whole_box(tensor.shape), ITEM_BYTES[tensor.dtype]
        for slab in whole.slabs(whole, BATCH_BYTES // item) if whole.volume else ():
            waiting.append((name, slab))
            size_bytes += slab.volume * item + ALIGNMENT
            if size_bytes >= BATCH_BYTES:
                yield waiting
                waiting, size_bytes = [], 0
    yield waiting


def _read(
    source: ShardSource, slabs: Sequence[tuple[str, TensorBox]], memory: np.ndarray[Any, Any]
) -> list[TensorSlab]:
    found: list[TensorSlab] = []
    direct: list[tuple[ByteSpan, memoryview]] = []
    pieces: list[tuple[TensorPiece, np.ndarray[Any, Any]]] = []
    for name, box in slabs:
        item = ITEM_BYTES[source.tensors[name].dtype]
        own, memory = np.split(memory, [box.volume * item])
        memory = memory[-len(own) % ALIGNMENT :]
        found.append(TensorSlab(name, box, own.data))
        target = own.view(ITEM_TYPES[item]).reshape(box.sizes)
        for piece in source.pieces({name: box}):
            where: tuple[Any, ...] = (*piece.place_in(box), ...)
            part = target[where]
            size_bytes = piece.span.end - piece.span.begin
            if part.flags.c_contiguous and part.nbytes == size_bytes >= MIN_DIRECT_BYTES:
                into = part.reshape(-1).view("u1").data
                direct += [each[1:] for each in source.by_chunk(piece.span, into)]
            else:
                pieces.append((piece, part))
    source.read_into(sorted(direct, key=lambda each: each[0]))
    pieces.sort(key=lambda each: each[0].span)
    done = 0
    for window, last in source.windows((piece.span for piece, _ in pieces), BATCH_BYTES):
        buffer = bytearray(window.size_bytes)
        source.read(window, memoryview(buffer), 0, 1)
        while done < len(pieces) and pieces[done][0].span <= last:
            piece, part = pieces[done]
            part[...] = _elements(piece, part.dtype, buffer, window.offset(piece.span))
            done += 1
    return found


def _elements(
    piece: TensorPiece, dtype: np.dtype[Any], buffer: bytearray, begin: int
) -> np.ndarray[Any, Any]:
    count = (piece.span.end - piece.span.begin) // dtype.itemsize
    flat = np.frombuffer(buffer, dtype, count, begin)
    strides = [stride * dtype.itemsize for stride in piece.strides]
    return np.lib.stride_tricks.as_strided(flat, piece.box.sizes, strides)
