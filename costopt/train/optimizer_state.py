"""An optimizer's state, loaded as it was saved: each tensor in its dtype, on its device.

``Optimizer.load_state_dict`` casts floating-point state to the dtype of the parameter, which cuts
float32 masters of bfloat16 weights, breaks strings and arrays in the state, and takes over how the
optimizer computes (torch 2.13).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError

KERNEL_SETTINGS = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Settings of an optimizer that say how it computes, not what: a restore leaves them alone."""
OWN_SETTINGS = KERNEL_SETTINGS | {"params"}
ON_CPU, ON_PARAMETER = "cpu", "parameter"
Devices = Mapping[str, str]
"""Where tensors of a state are that are not at their default device, by "parameter/key"."""


def load_optimizer_state(
    optimizer: Optimizer, state: Mapping[str, Any], devices: Devices | None = None
) -> None:
    """Load what ``optimizer.state_dict()`` returned.

    Unlike ``optimizer.load_state_dict``, no value changes its dtype, and ``foreach``, ``fused`` and
    ``capturable`` stay as they are. Tensors go to the parameter's device, the number of steps as
    the optimizer's kernels want it, those that ``devices`` names to where they were. Raise
    CheckpointError if it is not a state of such an optimizer, with nothing changed if the groups of
    parameters are others.
    """
    groups = optimizer.param_groups
    try:
        sizes = [len(group["params"]) for group in state["param_groups"]]
        state["state"].items()
    except (AttributeError, LookupError, TypeError):
        raise other_model("what was saved is not the state of an optimizer") from None
    check_group_sizes(sizes, optimizer)
    kernels = [{k: g[k] for k in KERNEL_SETTINGS if k in g} for g in groups]
    is_custom = _loads_its_own_way(optimizer)
    try:
        optimizer.load_state_dict({**state} if is_custom else {**state, "state": {}})
        for group, own in zip(optimizer.param_groups, kernels, strict=True):
            group.update(own)
        loaded = _placed_state(optimizer, state, devices or {})
        if is_custom:
            _undo_casts(optimizer, loaded)
        else:
            optimizer.__setstate__({"state": loaded, "param_groups": optimizer.param_groups})
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        why = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise other_model(f"{type(optimizer).__name__} cannot load what was saved: {why}") from e


def check_group_sizes(saved: list[int], optimizer: Optimizer) -> None:
    """Raise CheckpointError if an optimizer has other groups of parameters than was saved."""
    own = [len(group["params"]) for group in optimizer.param_groups]
    if own != saved:
        raise other_model(f"its optimizer has groups of {saved} parameters, this one of {own}")


def other_model(what: str, source: str = "the checkpoint") -> CheckpointError:
    """Return the error for a state that does not fit model or optimizer."""
    return CheckpointError(
        f"{source} is of another model: {what}",
        hint="restore into the model and optimizer that were saved, or use another URI",
        code="other_model",
    )


def unusual_devices(optimizer: Optimizer, names: Mapping[int, str] | None = None) -> dict[str, str]:
    """Return where the tensors of a state are that are not at their default device.

    Parameters go by their numbers, or by these ``names`` of their identities.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if all(parameter.device.type == "cpu" for parameter in parameters):
        return {}
    found: dict[str, str] = {}
    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = str(number) if names is None else names[id(parameter)]
            for path, tensor in tensors_in(optimizer.state.get(parameter, {}), name):
                if tensor.device.type != default_device(path, parameter, group).type:
                    on_cpu = tensor.device.type == "cpu"
                    found[path] = ON_CPU if on_cpu else ON_PARAMETER
            number += 1
    return found


def place(
    value: Any, path: str, parameter: Tensor, group: Mapping[str, Any], devices: Devices
) -> Any:
    """Return a value of a state with its tensors where they belong, in new containers."""
    if isinstance(value, Tensor):
        where = devices.get(path)
        if where == ON_CPU:
            return value.to("cpu")
        default = default_device(path, parameter, group)
        return value.to(parameter.device if where == ON_PARAMETER else default)
    if isinstance(value, dict):
        copied = copy.copy(value)
        for key, inner in value.items():
            copied[key] = place(inner, f"{path}/{key}", parameter, group, devices)
        return copied
    if isinstance(value, list | tuple):
        parts = [
            place(inner, f"{path}/{index}", parameter, group, devices)
            for index, inner in enumerate(value)
        ]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _loads_its_own_way(optimizer: Optimizer) -> bool:
    if type(optimizer).load_state_dict is not Optimizer.load_state_dict:
        return True  # a wrapper of another optimizer may have no hooks
    return bool(
        optimizer._optimizer_load_state_dict_pre_hooks
        or optimizer._optimizer_load_state_dict_post_hooks
    )


def _placed_state(
    optimizer: Optimizer, state: Mapping[str, Any], devices: Devices
) -> dict[Any, Any]:
    """Return a saved state by parameter; what belongs to none stays under its own key."""
    ids = chain.from_iterable(group["params"] for group in state["param_groups"])
    found: dict[Any, Any] = copy.copy(optimizer.state)
    found.clear()
    own = {}
    number = 0
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        for parameter in group["params"]:
            own[next(ids)] = parameter, group, saved, str(number)
            number += 1
    for key, values in state["state"].items():
        if key not in own:
            found[key] = values
            continue
        parameter, group, saved, path = own[key]
        placed = place(values, path, parameter, group, devices)
        step = placed.get("step") if isinstance(placed, dict) else None
        if isinstance(step, Tensor) and _steps_on_device(group) and not _steps_on_device(saved):
            placed["step"] = step.to(torch.float32)  # all that these kernels take
        found[parameter] = placed
    return found


def _undo_casts(optimizer: Optimizer, saved: Mapping[Any, Any]) -> None:
    """Replace what has the shape, but no longer the dtype that was saved."""
    for parameter, values in optimizer.state.items():
        if isinstance(values, dict) and isinstance(saved.get(parameter), dict):
            _replace_cast(values, saved[parameter])


def _replace_cast(values: dict[Any, Any], saved: Mapping[Any, Any]) -> None:
    for key, value in values.items():
        before = saved.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            _replace_cast(value, before)
        elif isinstance(value, Tensor) and isinstance(before, Tensor):
            is_cast = value.shape == before.shape and value.dtype != before.dtype
            values[key] = before if is_cast else value


def default_device(path: str, parameter: Tensor, group: Mapping[str, Any]) -> torch.device:
    """Return where PyTorch's optimizers have a tensor, by its path "parameter/key"."""
    is_step = path.count("/") == 1 and path.endswith("/step")
    return torch.device("cpu") if is_step and not _steps_on_device(group) else parameter.device


def _steps_on_device(group: Mapping[str, Any]) -> bool:
    return bool(group.get("fused") or group.get("capturable"))


def tensors_in(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested containers, by path."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors_in(inner, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from tensors_in(inner, f"{path}/{index}")
