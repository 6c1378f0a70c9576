"""Pours a sharded checkpoint into the shards of any mesh; each node reads what it needs once.

The processes of a node read equal shares of a window into memory that they share, and verify them;
then each takes what it needs, while the next window arrives in the other half of the memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.source import ByteSpan, ShardSource, TensorPiece
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.train.sharded_ranks import ShardRanks
from costopt.train.sharded_state import Shard

MIN_WINDOW_BYTES, MAX_WINDOW_BYTES = 16 << 20, 128 << 20
"""Read at once by a node, which holds two of them: a quarter of what it needs, within these."""


def pour(source: ShardSource, shards: Sequence[Shard], node: ShardRanks) -> None:
    """Fill the shards. Collective over the node.

    Raise ValueError on all its processes if a byte that one of them needs is damaged or missing;
    some shards are filled by then. Raise CheckpointError if there is no memory for a window.
    """
    pieces = source.pieces({shard.spec.name: shard.box for shard in shards})
    own = [tuple(piece.span) for piece in pieces]
    spans = {span for each in node.gather(own) for span in map(ByteSpan._make, each)}
    share = sum(span.end - span.begin for span in spans) // 4
    windows = list(source.windows(spans, max(MIN_WINDOW_BYTES, min(share, MAX_WINDOW_BYTES))))
    if not windows:
        return
    half = max(window.size_bytes for window, _ in windows)
    memory = _shared_memory(min(2, len(windows)) * half, node)
    by_name = {shard.spec.name: shard for shard in shards}
    waiting = iter([*pieces, None])
    piece = next(waiting)
    for number, (window, last) in enumerate(windows):
        base = number % 2 * half
        view = memoryview(memory.map)[base : base + window.size_bytes]
        # It ends on all once all have poured the window before: its half may be overwritten next.
        node.together(lambda w=window, v=view: source.read(w, v, node.rank, node.size))  # type: ignore[misc]
        while piece is not None and piece.span <= last:
            shard = by_name[piece.tensor.name]
            place = base + window.offset(piece.span)
            take_piece(piece, shard.box, shard.local, memory.map, place)
            piece = next(waiting)
        view.release()


def take_piece(
    piece: TensorPiece, box: TensorBox, target: Tensor, memory: Any, offset: int
) -> None:
    """Copy a piece into ``target``, which holds ``box``. The piece's bytes are in ``memory``."""
    dtype = target.dtype
    count = (piece.span.end - piece.span.begin) // dtype.itemsize
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
    places = zip(piece.box.starts, box.starts, piece.box.sizes, strict=True)
    part = tuple(slice(start - own, start - own + size) for start, own, size in places)
    with torch.no_grad():
        target[part].copy_(flat.as_strided(piece.box.sizes, piece.strides))


def _shared_memory(size_bytes: int, node: ShardRanks) -> SharedMemory:
    """Return memory of the node's first process, which the others open through /proc."""
    created: list[SharedMemory] = []

    def create() -> tuple[int, int, int]:
        memory = SharedMemory.create(size_bytes)
        created.append(memory)
        return os.getpid(), memory.descriptor, memory.size_bytes

    pid, descriptor, size = node.on_first(create)

    def attach() -> SharedMemory:
        if created:
            return created[0]
        try:
            opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
            return SharedMemory(opened, size, writable=True)
        except OSError as error:
            raise CheckpointError(
                f"processes of one node cannot share memory: {error.strerror}",
                hint="start the processes of a node in one container and as one user",
                code="no_shared_memory",
            ) from error

    shared: Any = node.together(attach)
    assert isinstance(shared, SharedMemory)
    return shared
