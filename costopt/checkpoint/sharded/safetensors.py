"""Weights as safetensors files, in and out of sharded checkpoints, without PyTorch.

A file is eight bytes of length, a JSON header with each tensor's type, shape and place, then the
bytes (https://github.com/huggingface/safetensors). Several files come with an index, as the Hugging
Face Hub and its libraries expect it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.sharded.boxes import TensorBox, whole_box
from costopt.checkpoint.sharded.importing import BoxStream
from costopt.checkpoint.sharded.index import ITEM_BYTES
from costopt.checkpoint.sharded.source import ShardSource
from costopt.checkpoint.sharded.tensor_stream import stream_tensors
from costopt.domain.errors import CheckpointError

WEIGHTS = "model."
MAX_FILE_BYTES = 5_000_000_000
INDEX = "model.safetensors.index.json"
READ_BYTES = 16 << 20
MAX_HEADER_BYTES = 100 << 20
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}  # fmt: skip
TYPES = {code: dtype for dtype, code in DTYPES.items()}


def export_safetensors(
    source: ShardSource, folder: Path, max_file_bytes: int = MAX_FILE_BYTES
) -> list[Path]:
    """Write the weights of a checkpoint into a folder, verified; return the files.

    Raise CheckpointError: damaged, a type that the format has not, weights there already, no space.
    """
    weights = [t for name, t in sorted(source.tensors.items()) if name.startswith(WEIGHTS)]
    for tensor in weights:
        if tensor.dtype not in DTYPES:
            raise CheckpointError(
                f"safetensors has no type {tensor.dtype}, which {tensor.name} is",
                hint="export with --to dcp",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if list(folder.glob("model*.safetensors*")):
            raise CheckpointError(
                f"{folder} holds weights already", hint="export to another folder", code="not_empty"
            )
        files = _write_all(source, weights, folder, max_file_bytes)
    except OSError as error:
        raise CheckpointError(f"cannot write to {folder}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}", code="damaged") from error
    return files


def _write_all(
    source: ShardSource, weights: Sequence[TensorSpec], folder: Path, max_file_bytes: int
) -> list[Path]:
    groups = _groups(weights, max_file_bytes)
    width = len(groups)
    names = [f"model-{number:05d}-of-{width:05d}.safetensors" for number in range(1, width + 1)]
    names = ["model.safetensors"] if width == 1 else names
    for name, group in zip(names, groups, strict=True):
        _write(source, group, folder / name)
    if width == 1:
        return [folder / names[0]]
    placed = {_plain(t): name for name, group in zip(names, groups, strict=True) for t in group}
    index = {"metadata": {"total_size": sum(map(_size, weights))}, "weight_map": placed}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return [folder / name for name in (*names, INDEX)]


def _groups(weights: Sequence[TensorSpec], max_file_bytes: int) -> list[list[TensorSpec]]:
    groups: list[list[TensorSpec]] = [[]]
    held = 0
    for tensor in weights:
        if groups[-1] and held + _size(tensor) > max_file_bytes:
            groups.append([])
            held = 0
        groups[-1].append(tensor)
        held += _size(tensor)
    return groups


def _write(source: ShardSource, tensors: Sequence[TensorSpec], path: Path) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for tensor in tensors:
        end = begin + _size(tensor)
        code, shape = DTYPES[tensor.dtype], list(tensor.shape)
        header[_plain(tensor)] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    # The format aligns the tensors to 8 bytes by spaces after the header.
    encoded += b" " * (-len(encoded) % 8)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for slab in stream_tensors(source, [tensor.name for tensor in tensors]):
            file.write(slab.data)
        file.flush()
        os.fsync(file.fileno())
    # No reader finds half a file under its name.
    partial.rename(path)


def _plain(tensor: TensorSpec) -> str:
    return tensor.name.removeprefix(WEIGHTS)


def _size(tensor: TensorSpec) -> int:
    return whole_box(tensor.shape).volume * ITEM_BYTES[tensor.dtype]


def read_safetensors(path: Path) -> Iterator[BoxStream]:
    """Yield the tensors of a file, or of all such files of a folder, as weights to import.

    Raise CheckpointError if there are none or one is not valid.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise CheckpointError(f"there are no safetensors files in {path}", hint="check the path")
    for file in files:
        try:
            begin, header = _header(file)
            yield from _tensors(file, begin, header)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{file} is not a safetensors file: {error}") from error


def _header(file: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        # Before the memory for it is reserved: any file may say any length.
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {length} bytes is too long")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header


def _tensors(file: Path, begin: int, header: dict[str, dict[str, Any]]) -> Iterator[BoxStream]:
    for name, fields in header.items():
        first, last = fields["data_offsets"]
        shape = tuple(int(size) for size in fields["shape"])
        tensor = TensorSpec(WEIGHTS + name, TYPES[str(fields["dtype"])], shape)
        box: TensorBox = whole_box(shape)
        if last - first != _size(tensor):
            raise ValueError(f"{name} has {last - first} bytes instead of {_size(tensor)}")
        yield BoxStream(tensor, box, read_span(file, begin + first, begin + last))


def read_span(file: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file between two places. Raise ValueError if it is shorter."""
    with file.open("rb") as opened:
        opened.seek(begin)
        while begin < end:
            data = opened.read(min(READ_BYTES, end - begin))
            if not data:
                raise ValueError(f"it ends {end - begin} bytes too early")
            begin += len(data)
            yield data
