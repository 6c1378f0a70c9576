"""Where the bytes are that a rank needs, whatever mesh wrote them: pieces, windows and reads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple

from costopt.checkpoint.manifest import CheckpointName, Manifest, Part, TensorSpec, compute_digest
from costopt.checkpoint.replicas.snapshot import Tier
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.index import ITEM_BYTES, SHARD_CHUNK_BYTES, ShardIndex
from costopt.checkpoint.sharded.snapshot import NearRanges
from costopt.checkpoint.sharded.tiling import BoxColumns
from costopt.domain.errors import StoreError
from costopt.store.ranges import KeyRange, fill_ranges, scatter

MAX_PIECE_BYTES = 16 << 20
ALIGNMENT = 64
MIN_DIRECT_BYTES = 1 << 10
"""Smaller pieces pass through a window: a read has at most 1,024 places in memory (Linux)."""
NEAR_CHUNKS = 64
"""Read from near tiers in one request, 16 MiB: a single connection does not fill a fast network."""
MAX_NEAR_REQUESTS = 4


class ByteSpan(NamedTuple):
    """A run of bytes among the tensors that a rank wrote."""

    source: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """Elements that are needed, ``box`` of the tensor, and the run of bytes that they lie in.

    The run begins with the first of them; neighbours are ``strides`` elements apart.
    """

    span: ByteSpan
    tensor: TensorSpec
    box: TensorBox
    strides: tuple[int, ...]

    def place_in(self, box: TensorBox) -> tuple[slice, ...]:
        """Return where the elements are in an array that holds ``box`` of the tensor."""
        places = zip(self.box.starts, box.starts, self.box.sizes, strict=True)
        return tuple(slice(start - own, start - own + size) for start, own, size in places)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """Runs of whole chunks that are read together, and where each begins in the memory for it."""

    runs: tuple[ByteSpan, ...]
    offsets: tuple[int, ...]
    size_bytes: int

    def offset(self, span: ByteSpan) -> int:
        """Return where in the window a run of bytes begins that lies in it."""
        number = bisect_right(self.runs, span[:2], key=lambda run: run[:2]) - 1
        return self.offsets[number] + span.begin - self.runs[number].begin


class StoredChunk(NamedTuple):
    """A chunk that is needed: the memory that it goes to, and where a rank wrote it."""

    into: Sequence[memoryview]
    run: ByteSpan
    part: Part
    number: int


class ShardSource:
    """A sharded checkpoint to read from. ``indexes`` are verified.

    What ``near`` holds of it is read there, the rest from the store: nothing where ``name`` is
    None. ``bytes_read`` are those of tensors from the store, ``near_bytes`` those from near tiers.
    """

    def __init__(
        self,
        place: CheckpointRepository,
        name: CheckpointName | None,
        manifest: Manifest,
        indexes: Sequence[ShardIndex],
        near: NearRanges | None = None,
    ) -> None:
        self.manifest = manifest
        self.bytes_read = self.near_bytes = 0
        self._place, self._name, self._indexes, self._near = place, name, indexes, near
        assert manifest.shards is not None
        self.tensors = {tensor.name: tensor for tensor in manifest.shards.tensors}
        self._begins = [
            [0, *accumulate(part.size_bytes for part in index.tensors)] for index in indexes
        ]
        self._shared = [dict(index.delta.shared) if index.delta else {} for index in indexes]
        self._stored: dict[str, list[tuple[int, int, TensorBox]]] = defaultdict(list)
        for rank, index in enumerate(indexes):
            columns = BoxColumns.decode(index.layout_data)
            for row, number in enumerate(columns.numbers.tolist()):
                stored = rank, int(columns.offsets[row]), columns.box(row)
                self._stored[columns.tensors[number].name].append(stored)

    def objects(self, rank: int) -> bytes:
        """Return the verified objects of a rank. Raise ValueError if they are damaged."""
        index = self._indexes[rank]
        near = None if self._near is None else self._near.objects(rank, index.objects)
        if near is not None:
            return near
        if self._name is None:
            raise ValueError(f"no near tier holds the objects of rank {rank} any more")
        return self._place.read(self._name, index.objects, index.delta)

    @property
    def tier(self) -> Tier:
        """Return where the tensors were read: the farthest of several tiers."""
        used = [Tier.STORE] if self.bytes_read or self._near is None else []
        near = () if self._near is None else self._near.used
        return max((*used, *near), key=lambda tier: tier.distance, default=Tier.MEMORY)

    def boxes(self, name: str) -> list[TensorBox]:
        """Return the boxes in which a tensor is stored."""
        return [box for _, _, box in self._stored[name]]

    def pieces(self, wanted: Mapping[str, TensorBox]) -> list[TensorPiece]:
        """Return the pieces that make up the boxes, in the order in which they are stored."""
        found: list[TensorPiece] = []
        for name, box in wanted.items():
            tensor = self.tensors[name]
            item = ITEM_BYTES[tensor.dtype]
            for rank, offset, stored in self._stored[name]:
                common = box.intersect(stored)
                if common is None:
                    continue
                for slab in common.slabs(stored, MAX_PIECE_BYTES // item):
                    first, last = stored.extent(slab)
                    span = ByteSpan(rank, offset + first * item, offset + last * item)
                    found.append(TensorPiece(span, tensor, slab, stored.strides()))
        return sorted(found, key=lambda piece: piece.span)

    def windows(
        self, spans: Iterable[ByteSpan], max_bytes: int
    ) -> Iterator[tuple[ReadWindow, ByteSpan]]:
        """Yield the windows that hold the runs in their order, each with its last run.

        A run is wholly in one window, which has ``max_bytes`` or one run. The same runs give the
        same windows on each process.
        """
        runs: list[ByteSpan] = []
        held, last = 0, None
        for span in sorted(set(spans)):
            begin = span.begin // SHARD_CHUNK_BYTES * SHARD_CHUNK_BYTES
            end = -(-span.end // SHARD_CHUNK_BYTES) * SHARD_CHUNK_BYTES
            end = min(end, self._begins[span.source][-1])
            joins = bool(runs) and runs[-1].source == span.source and runs[-1].end >= begin
            more = max(0, end - (runs[-1].end if joins else begin))
            if last is not None and held + more > max_bytes:
                yield _window(runs), last
                runs, held, joins, more = [], 0, False, end - begin
            if joins:
                runs[-1] = runs[-1]._replace(end=max(end, runs[-1].end))
            else:
                runs.append(ByteSpan(span.source, begin, end))
            held, last = held + more, span
        if last is not None:
            yield _window(runs), last

    def read(self, window: ReadWindow, into: memoryview, share: int, shares: int) -> None:
        """Read and verify one of equal ``shares`` of a window into its place.

        Raise ValueError if a chunk is damaged, also when it is read again, or missing.
        """
        wanted = [
            StoredChunk(
                (into[(at := window.offset(run)) : at + run.end - run.begin],), run, part, n
            )
            for whole in window.runs
            for run, part, n in self._chunks(whole)
        ]
        self._fill(wanted[share * len(wanted) // shares : (share + 1) * len(wanted) // shares])

    def chunk(self, source: int, number: int) -> ByteSpan:
        """Return the bytes of a chunk, among all that a rank wrote."""
        begin = number * SHARD_CHUNK_BYTES
        return ByteSpan(source, begin, min(begin + SHARD_CHUNK_BYTES, self._begins[source][-1]))

    def by_chunk(
        self, span: ByteSpan, memory: memoryview
    ) -> Iterator[tuple[ByteSpan, ByteSpan, memoryview]]:
        """Yield the chunks in which a run of bytes lies, of each what is of the run, and where in
        the run's memory that goes.
        """
        first, last = span.begin // SHARD_CHUNK_BYTES, -(-span.end // SHARD_CHUNK_BYTES)
        for number in range(first, last):
            whole = self.chunk(span.source, number)
            begin, end = max(whole.begin, span.begin), min(whole.end, span.end)
            part = memory[begin - span.begin : end - span.begin]
            yield whole, ByteSpan(span.source, begin, end), part

    def read_into(self, targets: Iterable[tuple[ByteSpan, memoryview]]) -> None:
        """Read runs of bytes, each within a chunk, to where they are needed, and verify the chunks.

        The runs are sorted, and do not overlap. Raise ValueError as ``read`` does; what is damaged
        has arrived by then.
        """
        rest = memoryview(bytearray(SHARD_CHUNK_BYTES))
        wanted: list[StoredChunk] = []
        for key, group in groupby(
            targets, lambda t: (t[0].source, t[0].begin // SHARD_CHUNK_BYTES)
        ):
            ((run, part, number),) = self._chunks(self.chunk(*key))
            into, done = list[memoryview](), run.begin
            for span, memory in group:
                into += [rest[done - run.begin : span.begin - run.begin], memory]
                done = span.end
            into.append(rest[done - run.begin : run.end - run.begin])
            wanted.append(StoredChunk([each for each in into if each], run, part, number))
        self._fill(wanted)

    def _fill(self, wanted: Sequence[StoredChunk]) -> None:
        wanted = self._read_near(wanted)
        if wanted and self._name is None:
            raise ValueError(f"no near tier holds all of rank {wanted[0].run.source} any more")
        ranges = [self._stored_range(chunk) for chunk in wanted]
        try:
            filled = fill_ranges(self._place.store, ranges, [chunk.into for chunk in wanted])
            for chunk, stored, _ in zip(wanted, ranges, filled, strict=True):
                self._verify(chunk, stored)
        except StoreError as error:
            raise ValueError(error.message) from error
        self.bytes_read += sum(end - begin for _, begin, end in ranges)

    def _read_near(self, wanted: Sequence[StoredChunk]) -> Sequence[StoredChunk]:
        """Read what near tiers hold; return the chunks that they do not."""
        if self._near is None:
            return wanted
        near, requests, left = self._near, [], list[StoredChunk]()
        for _, group in groupby(wanted, key=lambda chunk: chunk.run.source):
            chunks = list(group)
            requests += [
                chunks[begin : begin + NEAR_CHUNKS] for begin in range(0, len(chunks), NEAR_CHUNKS)
            ]

        def read(chunks: list[StoredChunk]) -> Mapping[int, bytes]:
            asked = [
                (c.run.begin, c.run.end, c.part.algorithm, c.part.digests[c.number]) for c in chunks
            ]
            return near.read(chunks[0].run.source, asked)

        with ThreadPoolExecutor(MAX_NEAR_REQUESTS) as pool:
            for chunks, found in zip(requests, pool.map(read, requests), strict=True):
                for number, chunk in enumerate(chunks):
                    data = found.get(number)
                    if data is None:
                        left.append(chunk)
                        continue
                    scatter(memoryview(data), chunk.into)
                    self.near_bytes += len(data)
        return left

    def _chunks(self, run: ByteSpan) -> Iterator[tuple[ByteSpan, Part, int]]:
        """Yield a run's chunks in their order, each with its part and its number there."""
        begins = self._begins[run.source]
        begin = run.begin
        while begin < run.end:
            number = bisect_right(begins, begin) - 1
            part, first = self._indexes[run.source].tensors[number], begins[number]
            end = min(begin + part.chunk_bytes, first + part.size_bytes, run.end)
            yield ByteSpan(run.source, begin, end), part, (begin - first) // part.chunk_bytes
            begin = end

    def _stored_range(self, stored: StoredChunk) -> KeyRange:
        """Return where a chunk is: in the base, or among those that the rank wrote itself."""
        _, (rank, first, last), part, chunk = stored
        shared = self._shared[rank].get(part.name, ())
        before = bisect_left(shared, chunk)
        name, place = str(self._name), chunk - before
        if before < len(shared) and shared[before] == chunk:
            delta = self._indexes[rank].delta
            assert delta is not None
            name, place = delta.base, chunk
        begin = place * part.chunk_bytes
        return f"{name}/{part.name}", begin, begin + last - first

    def _verify(self, chunk: StoredChunk, stored: KeyRange) -> None:
        part, digest = chunk.part, chunk.part.digests[chunk.number]
        if compute_digest(part.algorithm, *chunk.into) == digest:
            return
        # What was damaged on the way is whole when it is read again; what is stored so is not.
        for _ in fill_ranges(self._place.store, [stored], [chunk.into]):
            if compute_digest(part.algorithm, *chunk.into) == digest:
                return
        key, begin, end = stored
        raise ValueError(f"{key} is damaged between bytes {begin} and {end}")


def _window(runs: Sequence[ByteSpan]) -> ReadWindow:
    sizes = (-(-(run.end - run.begin) // ALIGNMENT) * ALIGNMENT for run in runs)
    *offsets, end = accumulate(sizes, initial=0)
    return ReadWindow(tuple(runs), tuple(offsets), end)
