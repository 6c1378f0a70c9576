"""What decides a model's numbers besides its weights: its modules, and how they are set."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from costopt.train.described_values import describe, is_function, tensor_digest

WRAPPERS = re.compile(r"\b(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(\.|$)")
"""What torch.compile and activation checkpointing add to names."""
WRAPPER_CLASSES = frozenset({"OptimizedModule", "CheckpointWrapper", "FullyShardedDataParallel"})
INTERNAL = frozenset(vars(nn.Module()))
IMPLIED = frozenset(
    {
        "embedding_dim",
        "in_channels",
        "in_features",
        "input_size",
        "num_embeddings",
        "out_channels",
        "out_features",
    }
)
"""What follows from the shapes of PyTorch's modules, of which a large model has thousands."""
CONFIGURATIONS = frozenset({"config", "cfg"})
CHOICE = re.compile(r"'[A-Za-z][A-Za-z0-9_.-]{0,23}'")
"""A choice such as 'gelu'. Other texts, like paths and dates, may be others at each start."""
PLACE = re.compile(r"rank|world|device|process")
"""In names of what differs from process to process, as may the number of processes."""


def describe_model(model: nn.Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the modules and parameters are set to, and what may be of no consequence.

    Shapes and dtypes are those of the saved weights, and are compared with them.
    """
    settings, notes = {}, {}
    configurations: set[int] = set()
    for name, module in model.named_modules():
        if type(module).__name__ in WRAPPER_CLASSES:
            notes[f"wrapper {plain_name(name)}".strip()] = type(module).__name__
            continue
        label = f"module {plain_name(name)}" if plain_name(name) else "model"
        settings[label] = _class(module).__name__
        for key, value in _attributes(module, configurations):
            text = describe(value)
            if text is not None:
                target = settings if _is_setting(module, key, value, text) else notes
                target[f"{label} {key}"] = text
        notes |= {f"{label} {key}": tensor_digest(value) for key, value in _unsaved(module)}
    frozen = (n for n, p in model.named_parameters() if not p.requires_grad)
    settings |= {f"parameter {plain_name(name)}": "frozen" for name in frozen}
    return settings, notes


def plain_name(name: str) -> str:
    """Return a module's or tensor's name without what wrappers add to it."""
    return WRAPPERS.sub("", name).rstrip(".")


def _attributes(module: nn.Module, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield a module's attributes, and those of its configuration unless it was seen."""
    is_torch = _is_torch(module)
    for key, value in vars(module).items():
        is_left_out = is_torch and (key.startswith("_") or key in IMPLIED)
        # Frameworks wrap methods of an object, as they do forward.
        is_method = callable(value) and hasattr(type(module), key)
        if key in INTERNAL or is_left_out or is_method or isinstance(value, Tensor | nn.Module):
            continue
        if not _is_configuration(key, value):
            yield key, value
        elif id(value) not in seen:
            seen.add(id(value))
            for inner, content in _fields(value).items():
                yield f"{key}.{inner}", content


def _is_configuration(key: str, value: Any) -> bool:
    is_data = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_data or isinstance(value, SimpleNamespace) or key in CONFIGURATIONS


def _fields(value: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else getattr(value, "__dict__", {})


def _is_setting(module: nn.Module, key: str, value: Any, text: str) -> bool:
    name = key.rpartition(".")[2]
    is_object = callable(value) and not is_function(value)
    if name.startswith("_") or PLACE.search(name) or is_object:
        return False
    return _is_torch(module) or not isinstance(value, str) or bool(CHOICE.fullmatch(text))


def _class(module: nn.Module) -> type:
    """Return the class that a module had before ``fully_shard`` replaced it."""
    kind = type(module)
    return kind.__bases__[-1] if kind.__bases__[0].__name__ == "FSDPModule" else kind


def _is_torch(module: nn.Module) -> bool:
    return _class(module).__module__.partition(".")[0] == "torch"


def _unsaved(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors that a state dict lacks."""
    for key in sorted(module._non_persistent_buffers_set):
        value = module._buffers.get(key)
        if value is not None and not value.is_meta:
            yield key, value
    for key, value in vars(module).items():
        if isinstance(value, Tensor) and key not in INTERNAL and not value.is_meta:
            yield key, value
