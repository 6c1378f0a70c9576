"""What ``attach`` cannot train with, found before a checkpoint is read."""

from __future__ import annotations

import inspect
from operator import index
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from costopt.domain.errors import CostoptError

STATE_METHODS = ("state_dict", "load_state_dict", "step")


def whole_number(name: str, value: Any) -> int:
    """Return what may be NumPy's as Python's own. Raise CostoptError if it is not whole."""
    try:
        return index(value)
    except TypeError:
        raise CostoptError(f"{name} is {value!r}, which is not a whole number") from None


def check_optimizer(model: Any, optimizer: Any) -> None:
    """Raise CostoptError if these cannot be trained, saved and restored."""
    if not isinstance(model, nn.Module):
        raise CostoptError(f"the model is {_kind(model)}, which is not a torch.nn.Module")
    if not isinstance(optimizer, Optimizer):
        raise CostoptError(
            f"the optimizer is {_kind(optimizer)}, which is not a torch.optim.Optimizer",
            hint="attach one optimizer, with a group for each part of the model",
            code="unsupported_optimizer",
        )
    name = type(optimizer).__name__
    own = {id(parameter) for parameter in model.parameters()}
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if foreign := sum(id(parameter) not in own for parameter in trained):
        raise CostoptError(
            f"{foreign} of the {len(trained)} parameters of {name} are not the model's, so they "
            "would be neither averaged nor saved",
            hint="make them part of the model, and the optimizer from model.parameters()",
            code="foreign_parameter",
        )
    if required := _required_arguments(optimizer):
        raise _unsupported(f"{name}.step() requires {required}: a step is computed once here")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise _unsupported(f"{name} takes sparse gradients alone, which are not averaged here")
    try:
        optimizer.state_dict()
    except Exception as error:
        raise _unsupported(f"{name} does not return its state: {error}") from error


def check_scheduler(scheduler: Any) -> None:
    """Raise CostoptError if a scheduler cannot be stepped, saved and restored."""
    missing = [name for name in STATE_METHODS if not callable(getattr(scheduler, name, None))]
    if isinstance(scheduler, type) or missing:
        raise CostoptError(
            f"the scheduler is {_kind(scheduler)}, without a method {missing[0]}"
            if missing
            else f"the scheduler is {_kind(scheduler)}, and not an instance of it",
            hint="attach a scheduler of torch.optim.lr_scheduler, or None",
            code="unsupported_scheduler",
        )
    if required := _required_arguments(scheduler):
        raise CostoptError(
            f"{type(scheduler).__name__}.step() requires {required}, but is called without",
            hint="wrap it in an object whose step() passes them, such as job.loss",
            code="unsupported_scheduler",
        )


def _required_arguments(stepped: Any) -> str:
    """Return what the method step of a class requires; schedulers replace that of an object."""
    try:
        _, *parameters = inspect.signature(type(stepped).step).parameters.values()
    except (TypeError, ValueError):  # not written in Python
        return ""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return ", ".join(p.name for p in parameters if p.default is p.empty and p.kind not in variable)


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _unsupported(message: str) -> CostoptError:
    return CostoptError(
        message,
        hint="choose an optimizer whose step() takes no arguments, with a state of its own",
        code="unsupported_optimizer",
    )
