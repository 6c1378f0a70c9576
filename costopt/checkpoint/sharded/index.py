"""The index of one rank's files in a sharded checkpoint: boxes, where they are, and digests.

It is binary, since a large state has millions of digests, and sealed: it detects its own damage.

    costopt-index 1\\n
    length of the header, 8 bytes, little-endian
    header, JSON: which save, which rank, names and lengths of the files, chunks that a base holds
    layout, JSON: tensors and boxes; the same bytes in each save of a gang
    digests of the files' chunks, 16 bytes each
    XXH3 of all that, 16 bytes
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from costopt.checkpoint.manifest import XXH3, Delta, Part, TensorSpec, compute_digest
from costopt.checkpoint.sharded.boxes import TensorBox, untiled_reason

MAGIC = b"costopt-index 1\n"
LENGTH_BYTES = 8
DIGEST_BYTES = 16
SHARD_CHUNK_BYTES = 256 << 10
"""Smaller than in whole checkpoints: another mesh reads parts of what a rank wrote, in chunks."""

ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4,
    "uint64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""The types of tensors that can be saved sharded, and the bytes of an element."""


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box of the tensor with this number, and where its bytes begin among the rank's tensors."""

    tensor: int
    box: TensorBox
    offset: int


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The boxes that one rank writes. Elements are in row-major order."""

    tensors: tuple[TensorSpec, ...]
    boxes: tuple[PlacedBox, ...]

    def encode(self) -> bytes:
        """Return the document; the same layout gives the same bytes."""
        boxes = [(each.tensor, each.box.starts, each.box.sizes, each.offset) for each in self.boxes]
        fields = {"tensors": self.tensors, "boxes": boxes}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ShardLayout:
        """Return the layout in a document. Raise ValueError if it is not one."""
        try:
            fields = json.loads(data)
            return cls(
                tuple(TensorSpec(name, dtype, tuple(s)) for name, dtype, s in fields["tensors"]),
                tuple(
                    PlacedBox(number, TensorBox(tuple(starts), tuple(sizes)), offset)
                    for number, starts, sizes, offset in fields["boxes"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the index holds no layout: {error}") from error


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Which save an index belongs to, and what else its rank knows of it.

    ``gang`` is the fencing token of the ranks that save together. ``began_at`` and ``at`` are POSIX
    seconds. ``origin``, ``labels`` and ``parent`` are those of a manifest.
    """

    step: int
    generation: int
    gang: str
    rank: int
    world_size: int
    began_at: float
    at: float
    parent: str | None
    origin: dict[str, Any]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The index of one rank: its files, objects first, and the layout of what is in the others.

    ``delta`` says which chunks of the files are stored in those of an earlier save of the gang.
    """

    identity: SaveIdentity
    layout_data: bytes
    objects: Part
    tensors: tuple[Part, ...]
    delta: Delta | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return all files of the rank but the index."""
        return (self.objects, *self.tensors)

    @property
    def own_bytes(self) -> int:
        """Return the bytes of the rank's files that no base holds."""
        if self.delta is None:
            return sum(part.size_bytes for part in self.parts)
        return sum(self.delta.changed_bytes(part) for part in self.parts)

    @property
    def layout(self) -> ShardLayout:
        """Return the boxes. Raise ValueError if they are not valid."""
        return ShardLayout.decode(self.layout_data)

    def encode(self) -> bytes:
        """Return the document to store."""
        parts = [(part.name, part.size_bytes, part.chunk_bytes) for part in self.parts]
        fields = {**asdict(self.identity), "layout_bytes": len(self.layout_data), "parts": parts}
        if self.delta is not None:
            shared = [(name, _runs(numbers)) for name, numbers in self.delta.shared]
            fields["delta"] = (self.delta.base, shared)
        header = json.dumps(fields).encode()
        digests = "".join(digest for part in self.parts for digest in part.digests)
        length = len(header).to_bytes(LENGTH_BYTES, "little")
        body = b"".join((MAGIC, length, header, self.layout_data, bytes.fromhex(digests)))
        return body + _seal(memoryview(body))

    @classmethod
    def decode(cls, data: bytes) -> ShardIndex:
        """Return the index in a document. Raise ValueError saying what is wrong with it."""
        view = memoryview(data)
        if not data.startswith(MAGIC):
            raise ValueError("the index has an unsupported version")
        if _seal(view[:-DIGEST_BYTES]) != data[-DIGEST_BYTES:]:
            raise ValueError("the index does not match its own checksum")
        begin = len(MAGIC) + LENGTH_BYTES
        end = begin + int.from_bytes(view[len(MAGIC) : begin], "little")
        try:
            fields = json.loads(bytes(view[begin:end]))
            layout_end = end + fields.pop("layout_bytes")
            digests = view[layout_end:-DIGEST_BYTES].hex(" ", DIGEST_BYTES).split()
            objects, *tensors = _parts(fields.pop("parts"), digests)
            delta = _delta(fields.pop("delta", None))
            labels = tuple((str(name), str(value)) for name, value in fields.pop("labels"))
            identity = SaveIdentity(**fields, labels=labels)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the index lacks a field: {error}") from error
        return cls(identity, bytes(view[end:layout_end]), objects, tuple(tensors), delta)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as pairs of the first of a run and the one after its last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _delta(listed: tuple[str, list[tuple[str, list[tuple[int, int]]]]] | None) -> Delta | None:
    if listed is None:
        return None
    base, shared = listed
    numbers = ((name, (n for run in runs for n in range(*run))) for name, runs in shared)
    return Delta(base, tuple((name, tuple(each)) for name, each in numbers))


def _parts(listed: Sequence[tuple[str, int, int]], digests: Sequence[str]) -> list[Part]:
    counts = [-(-size // chunk) for _, size, chunk in listed]
    if sum(counts) != len(digests):
        raise ValueError(f"{len(digests)} digests instead of {sum(counts)}")
    begins = [0, *accumulate(counts)]
    return [
        Part(name, size, chunk, tuple(digests[begin : begin + count]))
        for (name, size, chunk), begin, count in zip(listed, begins, counts, strict=False)
    ]


def _seal(body: memoryview) -> bytes:
    return bytes.fromhex(compute_digest(XXH3, body))


def incomplete_reason(layouts: Sequence[ShardLayout], streams: Sequence[int]) -> str | None:
    """Return why the ranks' boxes are not a whole state, or None if they tile every tensor.

    ``streams`` are the bytes of tensors that each rank wrote.
    """
    specs: dict[str, TensorSpec] = {}
    boxes: dict[str, list[TensorBox]] = defaultdict(list)
    for rank, (layout, stream_bytes) in enumerate(zip(layouts, streams, strict=True)):
        for tensor in layout.tensors:
            if specs.setdefault(tensor.name, tensor) != tensor:
                return f"rank {rank} has another type or shape of {tensor.name} than others"
            if tensor.dtype not in ITEM_BYTES:
                return f"{tensor.name} has the unsupported type {tensor.dtype}"
        for placed in layout.boxes:
            tensor = layout.tensors[placed.tensor]
            end = placed.offset + placed.box.volume * ITEM_BYTES[tensor.dtype]
            if placed.offset < 0 or end > stream_bytes:
                return f"rank {rank} did not write all of its part of {tensor.name}"
            boxes[tensor.name].append(placed.box)
    reasons = (untiled_reason(specs[name], boxes[name]) for name in sorted(specs))
    return next((reason for reason in reasons if reason is not None), None)
