"""Storage for ``torch.distributed.checkpoint``: ``StorageWriter`` and ``StorageReader``.

    dcp.save(state, storage_writer=costopt.train.StorageWriter("s3://bucket/run", step=100))
    dcp.load(state, storage_reader=costopt.train.StorageReader("s3://bucket/run"))

A save is committed as one of ``ShardedCheckpointer`` is: verified, fenced, whole or not there. A
load reads only the chunks that this process needs, whatever mesh saved them, and verifies them.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.futures import Future

from costopt.checkpoint.commit import SaveRequest
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.identity import detect_identity
from costopt.checkpoint.manifest import CheckpointName, Origin, TensorSpec
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.boxes import TensorBox, whole_box
from costopt.checkpoint.sharded.commit import OBJECTS, ShardCommitter, ShardGroup
from costopt.checkpoint.sharded.index import SHARD_CHUNK_BYTES, PlacedBox, ShardLayout
from costopt.checkpoint.sharded.source import ShardSource, TensorPiece
from costopt.checkpoint.sharded.tensor_stream import open_source
from costopt.checkpoint.writer import split_files
from costopt.domain.errors import CheckpointError
from costopt.train.dcp_files import dcp_name, describe_tensor, state_values
from costopt.train.safe_objects import load_objects, pack_objects
from costopt.train.sharded_checkpointer import claim_place
from costopt.train.sharded_restore import take_piece
from costopt.train.state_layout import ALIGNMENT, DTYPE_NAMES

READ_BYTES = 64 << 20
VALUES = "dcp"
"""The rank's values that are not tensors, by name, as DCP packed them."""
HOLDERS = "dcp_holders"
"""Which rank holds which of these."""


class StorageWriter(storage.StorageWriter):
    """Saves one state; make another for each save. Raise CheckpointError on all ranks.

    ``keep`` and ``generation`` are as for ``Checkpointer``. Each save supersedes who saved there.
    """

    def __init__(
        self,
        uri: str | Path,
        *,
        step: int,
        keep: int | RetentionPolicy = 3,
        generation: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._place = CheckpointRepository.open(str(uri), detect_identity())
        self._step, self._generation = step, generation
        self._keep = RetentionPolicy.of(keep)
        self._labels = tuple((labels or {}).items())

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: the address and the step are known."""

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Do nothing: the coordinator claims the repository with the global plan."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Claim the repository; tell each rank its number and who holds which value."""
        token, attempt, generation = claim_place(self._place, self._generation)
        holders = {
            item.index.fqn: rank
            for rank, plan in enumerate(plans)
            for item in plan.items
            if item.type is WriteItemType.BYTE_IO
        }
        return [
            replace(
                plan, storage_data=(ShardGroup(token, attempt, n, len(plans)), generation, holders)
            )
            for n, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[storage.WriteResult]]:
        """Write this rank's part, and return once that of all ranks is committed."""
        began_at = time.monotonic()
        group, generation, holders = plan.storage_data
        packed = _pack(plan.items, planner)
        objects = pack_objects({"extra": {}, VALUES: packed.values, HOLDERS: holders})
        committer = ShardCommitter(
            self._place,
            generation,
            self._keep,
            Origin(str(torch.__version__)),
            writer=group.token,
            claimed=True,
            chunk_bytes=SHARD_CHUNK_BYTES,
            gang=group,
        )
        view = memoryview(packed.data)
        files = {OBJECTS: memoryview(objects), **split_files(view, len(packed.data))}
        committer.commit(
            SaveRequest(
                self._step,
                group.world_size,
                began_at,
                files,
                self._labels,
                layout=packed.layout.encode(),
            )
        )
        done: Future[list[storage.WriteResult]] = Future()
        done.set_result([storage.WriteResult(item.index, 0, None) for item in plan.items])
        return done

    def finish(self, metadata: Metadata, results: list[list[storage.WriteResult]]) -> None:
        """Do nothing: the save is committed."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:  # noqa: ARG003
        """Return False: DCP does not choose this storage by an address."""
        return False


@dataclass(frozen=True, slots=True)
class _Packed:
    data: bytearray
    layout: ShardLayout
    values: dict[str, bytes]


def _pack(items: list[WriteItem], planner: SavePlanner) -> _Packed:
    """Copy what is to be written, so that it may change from then on."""
    tensors: dict[TensorSpec, int] = {}
    placed: list[PlacedBox] = []
    values: dict[str, bytes] = {}
    data = bytearray()
    for item in items:
        found = planner.resolve_data(item)
        if not isinstance(found, Tensor):
            values[item.index.fqn] = found.getvalue()
            continue
        described = item.tensor_data
        assert described is not None
        shape, dtype = tuple(described.size), DTYPE_NAMES[found.dtype]
        number = tensors.setdefault(TensorSpec(item.index.fqn, dtype, shape), len(tensors))
        chunk = described.chunk
        box = TensorBox(tuple(chunk.offsets), tuple(chunk.sizes)) if shape else whole_box(())
        data += bytes(-len(data) % ALIGNMENT)
        placed.append(PlacedBox(number, box, len(data)))
        flat = found.detach().cpu().contiguous().view(-1).view(torch.uint8)
        data += flat.numpy().data
    return _Packed(data, ShardLayout(tuple(tensors), tuple(placed)), values)


class StorageReader(storage.StorageReader):
    """Reads the newest checkpoint, or the one of this name, of ``dcp.save`` or of
    ``ShardedCheckpointer``: {"model": …, "optim": …}.

    Raise CheckpointError if there is none, or a byte that is needed is damaged.
    """

    def __init__(self, uri: str | Path, name: str | None = None) -> None:
        self._place = CheckpointRepository.open(str(uri), detect_identity())
        self._name = name
        self._source: ShardSource | None = None
        self._own_names: dict[str, str] = {}
        self._values: dict[str, bytes] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:  # noqa: ARG002
        """Read the checkpoint again."""
        self._source = None

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Return what is stored, and in which boxes."""
        source = self._source = open_source(self._place, self._chosen())
        common = load_objects(source.objects(0))
        is_dcp = HOLDERS in common
        self._own_names = {(n if is_dcp else dcp_name(n)): n for n in source.tensors}
        described: dict[str, Any] = {
            name: describe_tensor(source.tensors[own], source.boxes(own))
            for name, own in self._own_names.items()
        }
        # Values that are not tensors are spread over the ranks: only their holders are read.
        for rank in sorted(set(common.get(HOLDERS, {}).values())):
            self._values |= load_objects(source.objects(rank))[VALUES]
        for path, value in ({} if is_dcp else state_values(common)).items():
            packed = io.BytesIO()
            torch.save(value, packed)
            self._values[".".join(path)] = packed.getvalue()
        described |= dict.fromkeys(self._values, BytesStorageMetadata())
        return Metadata(described)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any
    ) -> None:
        """Do nothing."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill what the plan names."""
        assert self._source is not None
        source = self._source
        self._check_dtypes(plan, planner, source)
        wanted: list[tuple[TensorPiece, TensorBox, Tensor]] = []
        filled: list[tuple[ReadItem, Tensor]] = []
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._values[item.storage_index.fqn]))
                continue
            target = planner.resolve_tensor(item).detach()
            box = _needed(item)
            own = self._own_names[item.storage_index.fqn]
            wanted += [(piece, box, target) for piece in source.pieces({own: box})]
            filled.append((item, target))
        try:
            _fill(source, sorted(wanted, key=lambda each: each[0].span))
        except ValueError as error:
            raise CheckpointError(
                f"the checkpoint in {self._place.uri} is damaged: {error}", code="damaged"
            ) from error
        for item, target in filled:
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:  # noqa: ARG003
        """Return False: DCP does not choose this storage by an address."""
        return False

    def _check_dtypes(self, plan: LoadPlan, planner: LoadPlanner, source: ShardSource) -> None:
        """Raise CheckpointError, before one is read, for a tensor of another dtype than saved."""
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                continue
            name = item.storage_index.fqn
            saved = source.tensors[self._own_names[name]].dtype
            target = DTYPE_NAMES[planner.resolve_tensor(item).dtype]
            if target != saved:
                raise CheckpointError(
                    f"{name} was saved as {saved}, and is to be read into {target}",
                    hint=f"give a tensor of {saved} in the state dict, and cast it afterwards",
                    code="other_dtype",
                )

    def _chosen(self) -> CheckpointName:
        if self._name is None:
            found = next(iter(self._place.candidates()[0]), None)
        else:
            found = CheckpointName.parse(self._name)
        if found is None:
            raise CheckpointError(
                f"there is no checkpoint {self._name or ''} in {self._place.uri}",
                hint="`costopt checkpoints list` shows what there is",
                code="missing",
            )
        return found


def _needed(item: ReadItem) -> TensorBox:
    """Return the part of the whole tensor that an item of a plan names within a stored box."""
    begins = item.storage_index.offset or (0,) * len(item.lengths)
    starts = (at + more for at, more in zip(begins, item.storage_offsets, strict=True))
    return TensorBox(tuple(starts), tuple(item.lengths))


def _fill(source: ShardSource, wanted: list[tuple[TensorPiece, TensorBox, Tensor]]) -> None:
    done = 0
    for window, last in source.windows((piece.span for piece, _, _ in wanted), READ_BYTES):
        buffer = bytearray(window.size_bytes)
        source.read(window, memoryview(buffer), 0, 1)
        while done < len(wanted) and wanted[done][0].span <= last:
            piece, box, target = wanted[done]
            take_piece(piece, box, target, buffer, window.offset(piece.span))
            done += 1
