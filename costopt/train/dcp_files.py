"""Checkpoints in the files of torch.distributed.checkpoint (DCP), written and read in pieces.

DCP stores each box of a tensor as ``torch.save`` writes it, several to a file, and in ``.metadata``
where each is. Its names of an optimizer's state are those of ``get_optimizer_state_dict``.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.sharded.boxes import TensorBox
from costopt.checkpoint.sharded.importing import BoxStream
from costopt.checkpoint.sharded.safetensors import READ_BYTES
from costopt.checkpoint.sharded.source import ShardSource
from costopt.checkpoint.sharded.tensor_stream import stream_tensors
from costopt.domain.errors import CheckpointError
from costopt.train.safe_objects import load_objects
from costopt.train.state_layout import DTYPE_NAMES

METADATA = ".metadata"
DATA = "__0_0.distcp"
GROUPS = ("optim", "param_groups")
STATE = re.compile(r"(optim|optimizer)\.state\.")


def dcp_name(name: str) -> str:
    """Return DCP's name of a tensor: "optim.state.…" instead of "optimizer.…"."""
    own = name.removeprefix("optimizer.")
    return name if own == name else f"optim.state.{own}"


def own_name(name: str) -> str:
    """Return our name of a tensor in DCP's files; weights may lie at the top there."""
    found = STATE.match(name)
    if found is not None:
        return f"optimizer.{name[found.end() :]}"
    return name if name.startswith("model.") else f"model.{name}"


def describe_tensor(tensor: TensorSpec, boxes: list[TensorBox]) -> TensorStorageMetadata:
    """Return DCP's description of a tensor that is stored in these boxes."""
    chunks = [ChunkStorageMetadata(torch.Size(b.starts), torch.Size(b.sizes)) for b in boxes]
    properties = TensorProperties(dtype=getattr(torch, tensor.dtype))
    return TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)


def export_dcp(source: ShardSource, folder: Path) -> list[Path]:
    """Write weights and optimizer state into a folder, verified; return the files.

    ``dcp.load`` reads {"model": …, "optim": …} from it. Raise CheckpointError: damaged, not empty,
    no space.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CheckpointError(
                f"{folder} is not empty", hint="export to another folder", code="not_empty"
            )
        with (folder / DATA).open("wb") as file:
            metadata = _write(source, file)
            file.flush()
            os.fsync(file.fileno())
        (folder / METADATA).write_bytes(pickle.dumps(metadata))
    except OSError as error:
        raise CheckpointError(f"cannot write to {folder}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}", code="damaged") from error
    return [folder / DATA, folder / METADATA]


def _write(source: ShardSource, file: BinaryIO) -> Metadata:
    boxes: dict[str, list[TensorBox]] = {name: [] for name in source.tensors}
    stored: dict[MetadataIndex, _StorageInfo] = {}

    def put(value: Any, index: MetadataIndex) -> None:
        begin, packed = file.tell(), io.BytesIO()
        torch.save(value, packed)
        file.write(packed.getbuffer())
        stored[index] = _StorageInfo(DATA, begin, file.tell() - begin)

    for name, tensor in source.tensors.items():
        if 0 in tensor.shape:
            boxes[name].append(TensorBox((0,) * len(tensor.shape), tensor.shape))
            empty = torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype))
            put(empty, MetadataIndex(dcp_name(name), torch.Size((0,) * len(tensor.shape))))
    for name, box, data in stream_tensors(source, source.tensors):
        flat = torch.frombuffer(data, dtype=getattr(torch, source.tensors[name].dtype))
        boxes[name].append(box)
        put(flat.view(box.sizes), MetadataIndex(dcp_name(name), torch.Size(box.starts)))
    described: dict[str, Any] = {
        dcp_name(name): describe_tensor(source.tensors[name], found)
        for name, found in boxes.items()
    }
    paths = {name: _path(name) for name in described}
    for path, value in state_values(load_objects(source.objects(0))).items():
        name = ".".join(path)
        put(value, MetadataIndex(name))
        described[name], paths[name] = BytesStorageMetadata(), path
    return Metadata(described, paths, stored)


def state_values(objects: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return what else than tensors an optimizer's state has, by where DCP puts it."""
    groups = objects.get("groups")
    found: dict[tuple[str, ...], Any] = {} if groups is None else {GROUPS: groups}
    for parameter, values in objects.get("numbers", {}).items():
        found |= dict(_leaves(values, ("optim", "state", parameter)))
    return found


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*path, str(key)))


def _path(name: str) -> tuple[str, ...]:
    """Return where DCP puts a value in nested dictionaries."""
    if name.startswith("optim.state."):
        parameter, _, key = name.removeprefix("optim.state.").rpartition(".")
        return ("optim", "state", parameter, key)
    return ("model", name.removeprefix("model."))


def read_dcp(folder: Path) -> Iterator[BoxStream]:
    """Yield the tensors in a folder that ``dcp.save`` wrote.

    Weights are what is below "model" or at the top, moments what is below "optim" or "optimizer".
    ``.metadata`` is a pickle, so only files that are trusted may be read. Raise CheckpointError if
    they are not valid.
    """
    try:
        metadata = cast("Metadata", pickle.loads((folder / METADATA).read_bytes()))  # noqa: S301
        for index, info in metadata.storage_data.items():
            described = metadata.state_dict_metadata[index.fqn]
            if isinstance(described, TensorStorageMetadata):
                yield _box(folder, described, index, info)
    except (OSError, ValueError, KeyError, AttributeError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{folder} does not hold files of torch.distributed.checkpoint: {error}"
        ) from error


def _box(
    folder: Path, described: TensorStorageMetadata, index: MetadataIndex, info: _StorageInfo
) -> BoxStream:
    starts = tuple(index.offset or (0,) * len(described.size))
    chunk = next(c for c in described.chunks if tuple(c.offsets) == starts)
    dtype = DTYPE_NAMES[described.properties.dtype]
    tensor = TensorSpec(own_name(index.fqn), dtype, tuple(described.size))
    box = TensorBox(starts, tuple(chunk.sizes))
    size_bytes = box.volume * described.properties.dtype.itemsize
    data = _stored_bytes(folder / info.relative_path, info.offset, info.length, size_bytes)
    return BoxStream(tensor, box, data)


def _stored_bytes(path: Path, offset: int, length: int, size_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a contiguous tensor in what torch.save wrote: an archive of files."""
    with path.open("rb") as file:
        window = _FileWindow(file, offset, length)
        with zipfile.ZipFile(cast("BinaryIO", window)) as archive:
            inside = [name for name in archive.namelist() if "/data/" in name]
            if not size_bytes:
                return
            if len(inside) != 1 or archive.getinfo(inside[0]).file_size != size_bytes:
                raise ValueError(f"{path.name} holds a tensor that is not contiguous")
            with archive.open(inside[0]) as data:
                while piece := data.read(READ_BYTES):
                    yield piece


class _FileWindow(io.RawIOBase):
    """A run of a file's bytes, as a file."""

    def __init__(self, file: BinaryIO, begin: int, length: int) -> None:
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, origin: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[origin]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._length - self._at)
        self._file.seek(self._begin + self._at)
        data = self._file.read(rest if size < 0 else min(size, rest))
        self._at += len(data)
        return data
