"""Values of a recipe as texts that are the same in each process that runs the same script."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

CODE = "code"
MAX_TEXT = 160
MAX_TENSOR_NUMBERS = 16
MAX_DIGEST_BYTES = 1 << 20
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def describe(value: Any) -> str | None:
    """Return a value as a text; None if it has none that stays the same, as objects have not."""
    text = _describe(value)
    if text is not None and len(text) > MAX_TEXT:
        return f"{type(value).__name__} {_digest(text.encode())}"
    return text


def describe_callable(function: Any) -> str:
    """Return the name of a function and a digest of its code, or of an object's plain values.

    PyTorch's own functions go by their names: its version is compared on its own.
    """
    if isinstance(function, partial):
        given = _describe([*function.args, function.keywords]) or "?"
        return f"partial({describe_callable(function.func)}, {given})"
    if isinstance(function, types.MethodType):
        function = function.__func__
    is_torch = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
    if isinstance(function, types.FunctionType) and not is_torch:
        code = _digest(repr(_function_values(function)).encode())
        return f"{function.__qualname__} ({CODE} {code})"
    if isinstance(function, type) or not hasattr(function, "__dict__"):
        return str(getattr(function, "__qualname__", type(function).__qualname__))
    values = sorted((k, text) for k, v in vars(function).items() if (text := describe(v)))
    return f"{type(function).__qualname__} ({CODE} {_digest(repr(values).encode())})"


def tensor_digest(tensor: Tensor) -> str:
    """Return a digest of a tensor's bytes; of a large one only its beginning counts."""
    item = max(1, tensor.element_size())
    flat = tensor.detach().reshape(-1)[: MAX_DIGEST_BYTES // item].cpu().contiguous()
    data = flat.view(torch.uint8).numpy().tobytes()
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape} {_digest(data)}"


def _describe(value: Any) -> str | None:
    if isinstance(value, Enum):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item") and value.size == 1:
        value = value.item()
    if isinstance(value, float) and value.is_integer() and value:
        value = int(value)  # 1 and 1.0 are one setting
    if isinstance(value, PLAIN):
        return "0" if type(value) is float and repr(value) == "0.0" else repr(value)
    if isinstance(value, Tensor):
        few = value.numel() <= MAX_TENSOR_NUMBERS and type(value) is Tensor
        return repr(value.tolist()) if few and not value.is_meta else None
    if isinstance(value, Mapping):
        if any(_describe(key) is None for key in value):
            return None
        return _describe_all(
            "{", ((f"{_describe(key)}: ", value[key]) for key in sorted(value, key=repr)), "}"
        )
    if isinstance(value, list | tuple):
        return _describe_all("[", (("", inner) for inner in value), "]")
    if isinstance(value, set | frozenset):
        return _describe_all("{", (("", inner) for inner in sorted(value, key=repr)), "}")
    is_function = callable(value) and not isinstance(value, torch.nn.Module)
    return describe_callable(value) if is_function else None


def _describe_all(begin: str, items: Iterator[tuple[str, Any]], end: str) -> str | None:
    texts = []
    for key, value in items:
        text = _describe(value)
        if text is None:
            return None
        texts.append(key + text)
    return begin + ", ".join(texts) + end


def _function_values(function: types.FunctionType) -> list[Any]:
    cells = [] if function.__closure__ is None else [_cell(c) for c in function.__closure__]
    defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    return [*_code_values(function.__code__), *map(_describe, defaults), *cells]


def _cell(cell: types.CellType) -> str | None:
    try:
        content = cell.cell_contents
    except ValueError:  # not assigned yet
        return None
    is_function = isinstance(content, types.FunctionType)
    # A function may refer to itself.
    return _digest(content.__code__.co_code) if is_function else _describe(content)


def _code_values(code: types.CodeType) -> list[Any]:
    inner = (
        _code_values(each) if isinstance(each, types.CodeType) else _describe(each)
        for each in code.co_consts
    )
    return [code.co_code.hex(), code.co_names, *inner]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()
