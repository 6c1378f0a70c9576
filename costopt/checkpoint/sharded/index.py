"""The index of one rank's files in a sharded checkpoint: boxes, where they are, and digests.

It is binary, since a large state has millions of digests, and sealed: it detects its own damage.

    costopt-index 1\\n
    length of the header, 8 bytes, little-endian
    header, JSON: which save, which rank, names and lengths of the files, chunks that a base holds
    layout: tensors as a line of JSON, then 8 bytes each, little-endian: the number of boxes, their
        tensors, their offsets, where they start and how far they reach by dimension; the same bytes
        in each save of a gang
    digests of the files' chunks, 16 bytes each
    XXH3 of all that, 16 bytes
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from costopt.checkpoint.manifest import XXH3, Delta, Part, TensorSpec, compute_digest
from costopt.checkpoint.sharded.boxes import TensorBox

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
        flat = [len(self.boxes)]
        flat += [placed.tensor for placed in self.boxes]
        flat += [placed.offset for placed in self.boxes]
        flat += [start for placed in self.boxes for start in placed.box.starts]
        flat += [size for placed in self.boxes for size in placed.box.sizes]
        tensors = json.dumps(self.tensors, separators=(",", ":")).encode()
        return tensors + b"\n" + struct.pack(f"<{len(flat)}q", *flat)


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
