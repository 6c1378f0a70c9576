"""What is saved beside tensors, as ``torch.save`` writes it and ``weights_only`` reads it.

NumPy's numbers and arrays, which ``weights_only`` does not read, are stored as dtype and bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from costopt.domain.errors import CheckpointError

NUMPY_KINDS = frozenset("biufcmMSU")
"""Kinds of NumPy's dtypes whose values are bytes, and nothing that could be executed."""
LATIN = "latin-1"
"""Bytes as a text, which PyTorch also reads where there are none."""
MAX_NAMED = 5


def pack_objects(value: Any) -> bytes:
    """Return a value as it is stored. Raise CheckpointError that names what cannot be."""
    try:
        return _pack(value)
    except Exception as error:
        raise _unsafe_objects(_named(value) or str(error)) from error


def load_objects(data: bytes, whose: str = "the checkpoint holds") -> Any:
    """Return what was packed. Raise CheckpointError if PyTorch does not load it safely."""
    try:
        return _load(data)
    except pickle.UnpicklingError as error:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
        raise _unsafe_objects(", ".join(names) or "of unknown classes", whose) from error


def check_objects(value: Any) -> None:
    """Raise CheckpointError that names what could not be stored and loaded again."""
    try:
        _load(_pack(value))
    except Exception as error:
        raise _unsafe_objects(_named(value) or str(error).partition("\n")[0]) from error


def numpy_value(dtype: str, shape: tuple[int, ...] | None, data: str) -> Any:
    """Return a NumPy array, or with the shape None a NumPy number, of bytes as Latin-1.

    Raise ValueError if its kind is not stored.
    """
    kind = np.dtype(dtype)
    if kind.kind not in NUMPY_KINDS:
        raise ValueError(f"NumPy values of {kind} are not stored")
    array = np.ndarray(() if shape is None else shape, kind, bytearray(data, LATIN))
    return array[()] if shape is None else array


# Pickles name this function, so it must stay where it is.
torch.serialization.add_safe_globals([numpy_value])


class _NumpyPickle:
    """What ``torch.save`` needs of a module for pickling."""

    class Pickler(pickle.Pickler):
        """Stores NumPy's values as calls of ``numpy_value``."""

        def reducer_override(self, value: Any) -> Any:
            """Return how a value is made again; NotImplemented for the usual way."""
            is_array = type(value) is np.ndarray
            if not (is_array or isinstance(value, np.generic)):
                return NotImplemented
            if value.dtype.kind not in NUMPY_KINDS:
                return NotImplemented
            shape = value.shape if is_array else None
            return numpy_value, (value.dtype.str, shape, value.tobytes().decode(LATIN))


def _pack(value: Any) -> bytes:
    packed = io.BytesIO()
    torch.save(value, packed, pickle_module=_NumpyPickle)
    return packed.getvalue()


def _load(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _named(value: Any) -> str:
    found = list(_unsafe_leaves(value, ""))
    more = [f"and {len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
    return ", ".join([*found[:MAX_NAMED], *more])


def _unsafe_leaves(value: Any, path: str) -> Iterator[str]:
    """Yield each object in nested containers that is not loaded safely, as "path (class)"."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found = [leaf for key, inner in items for leaf in _unsafe_leaves(inner, f"{path}.{key}")]
        yield from found
        if found or type(value) in (dict, list, tuple):
            return
    if type(value) not in (Tensor, Parameter) and not _is_safe(value):
        kind = type(value)
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        yield f"{path.removeprefix('.')} ({module}{kind.__qualname__})"


def _is_safe(value: Any) -> bool:
    try:
        _load(_pack(value))
    except Exception:  # noqa: BLE001 - whatever a class of the user raises
        return False
    return True


def _unsafe_objects(named: str, whose: str = "the state holds") -> CheckpointError:
    return CheckpointError(
        f"{whose} objects that PyTorch does not load safely: {named}",
        hint="use numbers, texts, tensors, and dicts and lists of them, or allow the class with "
        "torch.serialization.add_safe_globals",
        code="unsafe_objects",
    )
