"""The recipe of a run: what decides its numbers besides the state, and can be seen from here.

It is taken from the objects as they were made, stored with each checkpoint and compared where
training resumes: a learning rate that a schedule moves counts by what it began with. What a loop
computes (the loss, its scale) is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from costopt.train.described_values import (
    CODE,
    describe,
    describe_callable,
    is_function,
    tensor_digest,
)
from costopt.train.model_recipe import describe_model, plain_name
from costopt.train.optimizer_state import KERNEL_SETTINGS, OWN_SETTINGS

NONE = "none"
SCHEDULE_PROGRESS = frozenset(
    {
        "T_cur",
        "T_i",
        "_get_lr_called_within_step",
        "_is_initial",
        "_last_lr",
        "_step_count",
        "base_lrs",  # the groups' learning rates are compared
        "best",
        "cooldown_counter",
        "last_epoch",
        "num_bad_epochs",
        "optimizer",
        "verbose",
    }
)
OPTIMIZER_INTERNAL = frozenset({"defaults", "param_groups", "state"})
SAMPLED_ROWS = 64


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is compared, by name, as texts.

    A difference in ``settings`` is the user's to decide; one in ``notes`` may decide the numbers or
    not, so that bit-equality is no longer proven.
    """

    settings: Mapping[str, str]
    notes: Mapping[str, str]

    def encode(self) -> str:
        """Return the recipe as it is stored: one text, so that saving it takes no time."""
        return json.dumps({"settings": self.settings, "notes": self.notes}, sort_keys=True)

    @classmethod
    def decode(cls, stored: object) -> Recipe | None:
        """Return a stored recipe; None if it is unknown."""
        try:
            found = json.loads(stored) if isinstance(stored, str) else {}
            return cls(dict(found["settings"]), dict(found["notes"]))
        except (KeyError, TypeError, ValueError):
            return None

    def digest(self) -> str:
        """Return what is the same for processes with equal settings."""
        return blake2b(
            json.dumps(self.settings, sort_keys=True).encode(), digest_size=4
        ).hexdigest()


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A setting or note of two recipes, in the one that was saved and the present one."""

    name: str
    before: str
    now: str

    @property
    def values(self) -> tuple[str, str]:
        """Return the two values."""
        return self.before, self.now

    @property
    def has_code(self) -> bool:
        """Whether a value is a function, of which only a digest is known."""
        return any(f"({CODE} " in value for value in self.values)

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.now}"


def find_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[Difference]:
    """Return what differs, by name; what one of them lacks is "none" there."""
    pairs = ((name, before.get(name, NONE), now.get(name, NONE)) for name in before.keys() | now)
    return sorted(Difference(*pair) for pair in pairs if pair[1] != pair[2])


def run_recipe(
    model: nn.Module,
    optimizer: Optimizer | None,
    scheduler: Any = None,
    *,
    settings: Mapping[str, Any] | None = None,
    data: Any = None,
    collate: Callable[..., Any] | None = None,
) -> Recipe:
    """Return the recipe of these objects, and of further ``settings``."""
    found = {name: describe(value) or NONE for name, value in (settings or {}).items()}
    chosen, notes = describe_model(model)
    found |= chosen
    if optimizer is not None:
        found |= dict(_optimizer_settings(model, optimizer))
    if scheduler is not None:
        found |= schedule_settings(scheduler)
    if data is not None:
        found |= _data_settings(data)
        notes |= dict(_data_notes(data, collate))
    return Recipe(found, notes)


def kernel_choice(optimizer: Optimizer) -> str:
    """Return how an optimizer computes its steps, as in "fused=True"."""
    chosen = {
        f"{key}={group[key]}"
        for group in optimizer.param_groups
        for key in KERNEL_SETTINGS
        if group.get(key)
    }
    return ", ".join(sorted(chosen)) or "default"


def _optimizer_settings(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, str]]:
    yield "optimizer", _class_name(optimizer)
    for key, value in vars(optimizer).items():
        # A scheduler wraps step.
        is_setting = not (key.startswith("_") or key in OPTIMIZER_INTERNAL or callable(value))
        if is_setting and (text := describe(value)) is not None:
            yield f"optimizer {key}", text
    names = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            is_moved = key == "lr" and "initial_lr" in group
            text = describe(value)
            if text is None or is_moved or key in OWN_SETTINGS or key == "param_names":
                continue
            label = "lr" if key == "initial_lr" else key
            yield f"{label} of group {number}", text
        members = [names.get(id(parameter), "?") for parameter in group["params"]]
        digest = blake2b("\n".join(members).encode(), digest_size=4).hexdigest()
        yield f"parameters of group {number}", f"{len(members)} ({digest})"


def schedule_settings(scheduler: Any) -> dict[str, str]:
    """Return what a scheduler and those within it are set to, by name."""
    return dict(_schedule_settings(scheduler, "scheduler"))


def _schedule_settings(scheduler: Any, label: str) -> Iterator[tuple[str, str]]:
    yield label, _class_name(scheduler)
    for number, part in enumerate(getattr(scheduler, "_schedulers", ())):
        yield from _schedule_settings(part, f"{label} {number}")
    state = scheduler.state_dict()
    held = getattr(scheduler, "__dict__", {})
    functions = {k: v for k, v in held.items() if "lambda" in k or is_function(v)}
    for key, value in [*state.items(), *functions.items()]:
        text = None if key in SCHEDULE_PROGRESS or key == "_schedulers" else describe(value)
        if text is not None:
            yield f"{label} {key}", text


def _data_settings(data: Any) -> dict[str, str]:
    found = {}
    if hasattr(data, "__len__"):
        found["data length"] = str(len(data))
    if isinstance(data, torch.utils.data.TensorDataset):
        rows = [
            tensor[:: max(1, len(tensor) // SAMPLED_ROWS)][:SAMPLED_ROWS]
            for tensor in data.tensors
            if tensor.layout is torch.strided
        ]
        found["data sample"] = " ".join(map(tensor_digest, rows))
    return found


def _data_notes(data: Any, collate: Callable[..., Any] | None) -> Iterator[tuple[str, str]]:
    yield "data", describe_callable(data) if callable(data) else _class_name(data)
    fingerprint = getattr(data, "_fingerprint", None)  # of Hugging Face's data sets
    if isinstance(fingerprint, str):
        yield "data fingerprint", fingerprint
    if collate is not None:
        yield "collate", describe_callable(collate)


def _class_name(value: Any) -> str:
    kind = type(value)
    module = str(kind.__module__)
    # Adam of torch.optim.adam is torch.optim.Adam. A script's own module has several names.
    return f"torch.{kind.__qualname__}" if module.startswith("torch.") else str(kind.__qualname__)
