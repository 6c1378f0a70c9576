"""Makes a first checkpoint of tensors that come as streams, with bounded memory."""

from __future__ import annotations

import io
import pickle
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from costopt.checkpoint.commit import CommitResult, SaveRequest
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.lineage import compare_and_swap_head, read_head
from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.repository import CheckpointRepository, Head
from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.commit import OBJECTS, ShardCommitter, ShardGroup
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, PlacedBox, ShardLayout
from costopt.domain.errors import CheckpointError

PART_BYTES = 64 << 20
ALIGNMENT = 64


class BoxStream(NamedTuple):
    """A part of a tensor; ``data`` yields its bytes, in row-major order."""

    tensor: TensorSpec
    box: TensorBox
    data: Iterator[bytes]


def import_tensors(place: CheckpointRepository, boxes: Iterable[BoxStream], step: int) -> str:
    """Make the boxes the first checkpoint of an empty repository, and return its name.

    Raise CheckpointError: not empty, boxes that do not make whole tensors, the store refuses.
    """
    if place.names() or read_head(place) is not None:
        raise CheckpointError(
            f"{place.uri} holds checkpoints already",
            hint="import into an empty folder or prefix",
            code="not_empty",
        )
    token = uuid.uuid4().hex
    compare_and_swap_head(place, lambda _: Head(0, token, (), time.time(), place.identity))
    committer = ShardCommitter(
        place,
        0,
        RetentionPolicy(),
        writer=token,
        claimed=True,
        chunk_bytes=SHARD_CHUNK_BYTES,
        gang=ShardGroup(token, 0, 0, 1),
    )
    tensors: dict[TensorSpec, int] = {}
    placed: list[PlacedBox] = []
    parts = _parts(boxes, tensors, placed)
    saving = SaveRequest(step, 1, time.monotonic(), {OBJECTS: memoryview(_no_objects())})

    def layout() -> bytes:
        return ShardLayout(tuple(tensors), tuple(placed)).encode()

    committed: CommitResult = committer.commit_stream(saving, parts, layout)
    return str(committed.name)


def _parts(
    boxes: Iterable[BoxStream], tensors: dict[TensorSpec, int], placed: list[PlacedBox]
) -> Iterator[bytes]:
    """Yield the parts of equal length that the boxes fill, and list what is where."""
    held, end = bytearray(), 0
    for tensor, box, data in boxes:
        padding = -end % ALIGNMENT
        held += bytes(padding)
        end += padding
        number = tensors.setdefault(tensor, len(tensors))
        placed.append(PlacedBox(number, box, end))
        for piece in data:
            held += piece
            end += len(piece)
            while len(held) >= PART_BYTES:
                yield bytes(held[:PART_BYTES])
                del held[:PART_BYTES]
    if held:
        yield bytes(held)


def _no_objects() -> bytes:
    """Return what torch.save would make of a state that is tensors alone.

    torch.load reads an archive of stored files: a pickle, and the version of the format.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"extra": {}}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
    return packed.getvalue()
