"""Pours a sharded checkpoint into the shards of any mesh; each node reads what it needs once.

What one process alone needs it reads to where it belongs. Of the rest, the processes of a node read
equal shares of a window into memory that they share, and verify them; then each takes what it
needs, while the next window arrives in the other half of the memory. Where the rest is little, each
reads all that it needs, since waiting for each other takes longer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES
from costopt.checkpoint.sharded.source import MIN_DIRECT_BYTES, ByteSpan, ShardSource, TensorPiece
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.train.sharded_ranks import ShardRanks
from costopt.train.sharded_state import Shard

MIN_WINDOW_BYTES, MAX_WINDOW_BYTES = 8 << 20, 128 << 20
"""Read at once by a node, which holds two of them: a quarter of what it needs, within these."""
MIN_SAVED_SHARE = 0.09
"""Of what the processes of a node would read each for itself, to read it once for all of them.
Waiting for each other takes longer than to read a tenth again.
"""
MAX_OTHERS_SHARE = 0.1
"""Of what a process needs, to read it without asking what the others need: what they need as well
is then read by each of them, at most this much more than once.
"""

Chunk = tuple[int, int]
_Target = tuple[ByteSpan, ByteSpan, memoryview | None, TensorPiece]
"""Where bytes go once a window holds the first span: to memory, or as a piece to its shard."""


def others_share(pieces: Sequence[TensorPiece], rank: int) -> float:
    """Return the share of the chunks in which pieces lie that other ranks wrote than this one."""
    chunks = {chunk for piece in pieces for chunk in _chunks(piece.span)}
    return sum(source != rank for source, _ in chunks) / max(1, len(chunks))


def pour(
    source: ShardSource, pieces: Sequence[TensorPiece], shards: Sequence[Shard], node: ShardRanks
) -> None:
    """Fill the shards from the pieces of them. Collective over the node.

    Raise ValueError if a byte that is needed is damaged or missing, at least on the process that
    needs it; some shards are filled by then. Raise CheckpointError if there is no memory for a
    window.
    """
    by_name = {shard.spec.name: shard for shard in shards}
    places = [_memory(piece, by_name[piece.tensor.name]) for piece in pieces]
    own = [(*p.span, int(place is not None)) for p, place in zip(pieces, places, strict=True)]
    rows = node.gather_rows(own, 4)
    everyone = [[(ByteSpan(*span), bool(direct)) for *span, direct in each] for each in rows]
    if _saved_share(everyone) < MIN_SAVED_SHARE:
        everyone, node = [everyone[node.rank]], node.alone()
    common = _common_chunks(everyone)
    alone: list[tuple[ByteSpan, memoryview]] = []
    targets: list[_Target] = []
    for piece, place in zip(pieces, places, strict=True):
        if place is None:
            targets.append((piece.span, piece.span, None, piece))
            continue
        torch.autograd.graph.increment_version(by_name[piece.tensor.name].local)
        for whole, span, own_bytes in source.by_chunk(piece.span, place):
            if (whole.source, whole.begin // SHARD_CHUNK_BYTES) in common:
                targets.append((whole, span, own_bytes, piece))
            else:
                alone.append((span, own_bytes))
    node.together(lambda: source.read_into(alone))
    spans = {span for each in everyone for span, direct in each if not direct}
    spans |= {source.chunk(*chunk) for chunk, is_direct in common.items() if is_direct}
    share = sum(span.end - span.begin for span in spans) // 4
    windows = list(source.windows(spans, max(MIN_WINDOW_BYTES, min(share, MAX_WINDOW_BYTES))))
    if not windows:
        return
    half = max(window.size_bytes for window, _ in windows)
    memory = _shared_memory(min(2, len(windows)) * half, node)
    waiting = iter([*sorted(targets, key=lambda each: each[0]), None])
    target = next(waiting)
    for number, (window, last) in enumerate(windows):
        base = number % 2 * half
        view = memoryview(memory.map)[base : base + window.size_bytes]
        # It ends on all once all have poured the window before: its half may be overwritten next.
        node.together(lambda w=window, v=view: source.read(w, v, node.rank, node.size))  # type: ignore[misc]
        while target is not None and target[0] <= last:
            _, span, place, piece = target
            begin, shard = window.offset(span), by_name[piece.tensor.name]
            if place is None:
                take_piece(piece, shard.box, shard.local, memory.map, base + begin)
            else:
                place[:] = view[begin : begin + len(place)]
            target = next(waiting)
        view.release()


def _chunks(span: ByteSpan) -> Iterator[Chunk]:
    numbers = range(span.begin // SHARD_CHUNK_BYTES, -(-span.end // SHARD_CHUNK_BYTES))
    return ((span.source, number) for number in numbers)


def _saved_share(everyone: Sequence[Sequence[tuple[ByteSpan, bool]]]) -> float:
    own = [{chunk for span, _ in each for chunk in _chunks(span)} for each in everyone]
    return 1 - len(set().union(*own)) / max(1, sum(map(len, own)))


def _common_chunks(everyone: Sequence[Sequence[tuple[ByteSpan, bool]]]) -> dict[Chunk, bool]:
    """Return the chunks that pass through windows, and whether bytes of each go to their place."""
    direct, rest = Counter[Chunk](), set[Chunk]()
    for each in everyone:
        direct.update({chunk for span, is_direct in each if is_direct for chunk in _chunks(span)})
        rest.update(chunk for span, is_direct in each if not is_direct for chunk in _chunks(span))
    shared = {chunk for chunk, count in direct.items() if count > 1}
    return {chunk: chunk in direct for chunk in rest | shared}


def _memory(piece: TensorPiece, shard: Shard) -> memoryview | None:
    """Return the memory of a piece; None if its bytes cannot be read to there as they are."""
    size_bytes = piece.span.end - piece.span.begin
    part = shard.local.detach()[piece.place_in(shard.box)]
    is_whole = part.is_contiguous() and part.nbytes == size_bytes >= MIN_DIRECT_BYTES
    if not is_whole or part.device.type != "cpu":
        return None
    return part.view(-1).view(torch.uint8).numpy().data


def take_piece(
    piece: TensorPiece, box: TensorBox, target: Tensor, memory: Any, offset: int
) -> None:
    """Copy a piece into ``target``, which holds ``box``. The piece's bytes are in ``memory``."""
    dtype = target.dtype
    count = (piece.span.end - piece.span.begin) // dtype.itemsize
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
    with torch.no_grad():
        target[piece.place_in(box)].copy_(flat.as_strided(piece.box.sizes, piece.strides))


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
