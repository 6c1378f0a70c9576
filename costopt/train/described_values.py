"""Values of a recipe as texts that are the same in each process that runs the same script."""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

CODE = "code"
MAX_TEXT = 160
MAX_DEPTH = 8
MAX_TENSOR_NUMBERS = 16
MAX_DIGEST_BYTES = 1 << 20
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)

FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    partial,
    type,
)


def describe(value: Any) -> str | None:
    """Return a value as a text; None if it has none that stays the same, as objects have not."""
    text = _describe(value, 0)
    if text is not None and len(text) > MAX_TEXT:
        return f"{type(value).__name__} {_digest(text.encode())}"
    return text


def describe_callable(function: Any, depth: int = 0) -> str:
    """Return the name of a function and a digest of its code, or of an object's plain values.

    PyTorch's own functions go by their names: its version is compared on its own.
    """
    if isinstance(function, partial):
        given = _describe([*function.args, function.keywords], depth + 1) or "?"
        return f"partial({describe_callable(function.func, depth + 1)}, {given})"
    if isinstance(function, types.MethodType):
        function = function.__func__
    is_torch = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
    if isinstance(function, types.FunctionType) and not is_torch:
        code = _digest(repr(_function_values(function, depth)).encode())
        return f"{function.__qualname__} ({CODE} {code})"
    if isinstance(function, type) or not hasattr(function, "__dict__"):
        return str(getattr(function, "__qualname__", type(function).__qualname__))
    texts = ((key, _describe(value, depth + 1)) for key, value in vars(function).items())
    values = sorted((key, text) for key, text in texts if text is not None)
    return f"{type(function).__qualname__} ({CODE} {_digest(repr(values).encode())})"


def tensor_digest(tensor: Tensor) -> str:
    """Return a digest of a tensor's bytes; of a large one only its beginning counts."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    found = tensor.detach()
    if type(found) is not Tensor or found.layout is not torch.strided or found.is_quantized:
        return f"{type(found).__name__} {shape}"
    flat = found.reshape(-1)[: MAX_DIGEST_BYTES // max(1, found.element_size())].cpu().contiguous()
    data = flat.view(torch.uint8).numpy().tobytes()
    return f"{str(found.dtype).removeprefix('torch.')} {shape} {_digest(data)}"


def is_function(value: Any) -> bool:
    """Return whether a value is code, and not an object that can be called."""
    return isinstance(value, FUNCTIONS)


def _describe(value: Any, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Enum):
        return str(value)
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, PLAIN):
        return _describe_plain(value)
    if isinstance(value, Tensor):
        few = value.numel() <= MAX_TENSOR_NUMBERS and type(value) is Tensor
        return repr(value.tolist()) if few and not value.is_meta else None
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _describe_all(value, depth + 1)
    # Objects that can be called are described where they are given, as for a schedule.
    is_given = depth <= 1 and callable(value) and not isinstance(value, torch.nn.Module)
    return describe_callable(value, depth) if is_given or is_function(value) else None


def _describe_plain(value: Any) -> str:
    # 1 and 1.0 are one setting.
    is_whole = isinstance(value, float) and value.is_integer() and repr(value) != "-0.0"
    return repr(int(value)) if is_whole else repr(value)


def _describe_all(value: Any, depth: int) -> str | None:
    items: Any = value.items() if isinstance(value, Mapping) else value
    texts = [_describe(item, depth) for item in items]
    if any(text is None for text in texts):
        return None
    is_ordered = isinstance(value, list | tuple)
    inner = ", ".join(text for text in (texts if is_ordered else sorted(texts, key=str)) if text)
    return f"[{inner}]" if is_ordered else f"{{{inner}}}"


def _function_values(function: types.FunctionType, depth: int) -> list[Any]:
    cells = [_cell(cell, depth + 2) for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    described = [_describe(each, depth + 2) for each in defaults]
    return [*_code_values(function.__code__), *described, *cells]


def _cell(cell: types.CellType, depth: int) -> str | None:
    try:
        return _describe(cell.cell_contents, depth)
    except ValueError:  # not assigned yet
        return None


def _code_values(code: types.CodeType) -> list[Any]:
    inner = (
        _code_values(each) if isinstance(each, types.CodeType) else _describe(each, 0)
        for each in code.co_consts
    )
    return [code.co_code.hex(), code.co_names, *inner]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()
