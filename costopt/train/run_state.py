"""The state of a run: everything that a checkpoint or a peer must hold for training to resume.

That is the weights, optimizer and schedule (``TrainingState``), the position, and the conditions on
which bit-equality depends besides the code: they are recorded, and compared when they may have
changed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError
from costopt.train.group import RankGroup, broadcast_state
from costopt.train.optimizer_state import load_optimizer_state, other_model, unusual_devices
from costopt.train.recipe import NONE, Difference, find_differences
from costopt.train.recipe_check import CONDITIONS, RecipeCheck, RecipeComparison
from costopt.train.safe_objects import check_objects
from costopt.train.state_layout import StateLayout

ATTACHED = ("step", "loss", "parts", "skipped", "rollbacks", "conditions", "voided")
"""What each state that was saved by ``attach`` has."""
RECIPE = "recipe"
"""A condition that ranks compare: a digest of their settings."""


class RunState:
    """The parts, the position, and what has voided bit-equality so far.

    Nothing depends on which process computes what, so rank 0's state is that of all. ``loss`` is
    what was observed in the last step. ``skipped`` steps of data were skipped by ``rollbacks``
    rollbacks. ``clip_norm`` is the script's, or the saved one where the user says so.
    """

    def __init__(
        self,
        parts: TrainingState,
        *,
        group: RankGroup,
        guarantee: ExactnessGuarantee,
        conditions: dict[str, str],
        recipe: RecipeCheck,
        clip_norm: float | None = None,
    ) -> None:
        self.step = 0
        self.loss: float | None = None
        self.skipped = 0
        self.rollbacks = 0
        self.guarantee = guarantee
        self.clip_norm = self._own_clip_norm = clip_norm
        self._parts, self._group = parts, group
        self._conditions = conditions
        self._recipe = recipe

    def capture(self) -> dict[str, Any]:
        """Return the whole state; its tensors may be read until the optimizer steps."""
        return {**self._shared(), "parts": self._parts.snapshot()}

    def check_objects(self) -> None:
        """Raise CheckpointError that names what could not be saved and loaded again."""
        check_objects(StateLayout.of(self._parts.state_dict()).rest)

    def load(self, state: Mapping[str, Any], source: str) -> None:
        """Resume from a checkpoint. Collective: rank 0 compares the settings.

        Raise CheckpointError if it lacks a part, or other settings are refused; nothing is loaded
        then.
        """
        _check_form(state, source)
        own = self._compare(state).encode() if self._group.rank == 0 else None
        self._load(state, source, RecipeComparison.decode(self._group.broadcast(own)))
        self.guarantee.void(*changed_conditions(state["conditions"], self._conditions))

    def align(self, source: int) -> None:
        """Adopt the state of a rank. Collective.

        Raise PeerLostError if a peer is lost, CheckpointError if this process' settings are others.
        """
        own = self._shared() if self._group.rank == source else None
        state = broadcast_state(self._group, own, source)
        if self._group.rank != source:
            self._adopt(state)

    def compare(self, members: Sequence[tuple[str, ...]]) -> None:
        """Void the guarantees that ranks with different conditions cannot keep."""
        self.guarantee.void(*rank_differences(members))

    def check_rank_conditions(self) -> None:
        """As ``compare``, with the conditions of each rank of a fixed group. Collective."""
        own = encode_conditions(self._conditions)
        self.compare([self._group.broadcast(own, rank) for rank in range(self._group.size)])

    def _compare(self, state: Mapping[str, Any]) -> RecipeComparison:
        return self._recipe.compare(
            state.get("recipe"),
            state["conditions"],
            self._parts.weight_differences(state["parts"]),
        )

    def _adopt(self, state: Mapping[str, Any]) -> None:
        """Take a peer's state. What it trains with is what the gang trains with."""
        found = self._compare(state)
        if self._recipe.changed == "apply" and found.settings:
            raise CheckpointError(
                "the gang that this process joins trains with other settings: "
                f"{'; '.join(map(str, found.settings))}",
                hint="stop all processes, then start them with the new settings",
                code="other_recipe",
            )
        # What may not matter may differ from rank to rank.
        found = RecipeComparison(found.settings)
        self._load(state, "the gang that this process joins", found)

    def _load(self, state: Mapping[str, Any], source: str, found: RecipeComparison) -> None:
        self._parts.check_model(state["parts"], source)
        reasons = self._recipe.settle(found, source)
        skipped = set()
        if self._recipe.replaces_optimizer:
            skipped.add("optimizer")
        if self._recipe.replaces_schedule:
            skipped.add("scheduler")
        self._parts.load_state_dict(state["parts"], source, state.get("devices"), skipped)
        self.step = state["step"]
        self.loss = state["loss"]
        self.skipped = state["skipped"]
        self.rollbacks = max(self.rollbacks, state["rollbacks"])
        self._recipe.apply(self.step)
        clip_norm = self._recipe.saved_value("clip_norm")
        self.clip_norm = self._own_clip_norm if clip_norm is None else ast.literal_eval(clip_norm)
        self.guarantee.void(*state["voided"], *reasons)

    def _shared(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "parts": self._parts.state_dict(),
            "devices": self._parts.devices(),
            "skipped": self.skipped,
            "rollbacks": self.rollbacks,
            "conditions": self._conditions,
            "recipe": self._recipe.stored,
            "voided": list(self.guarantee.voided),
        }


def _check_form(state: Mapping[str, Any], source: str) -> None:
    """Raise CheckpointError for a state that a loop of the user's own has saved."""
    has_all = all(name in state for name in ATTACHED)
    parts, conditions = state.get("parts"), state.get("conditions")
    if not (has_all and _holds(parts, Mapping) and _holds(conditions, str)):
        raise CheckpointError(
            f"{source} was not saved by attach",
            hint="restore it with costopt.train.Checkpointer, or use another URI",
            code="not_attached",
        )


def _holds(value: object, kind: type) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, kind) for each in value.values())


class Stateful(Protocol):
    """Anything that can be saved and restored, such as a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Load a state."""
        ...


class TrainingState:
    """Model, optimizer and scheduler as one state."""

    _parts: dict[str, Any]

    def __init__(self, model: nn.Module, optimizer: Optimizer, scheduler: Stateful | None) -> None:
        self._model = model
        self._parts = {"model": model, "optimizer": optimizer}
        if scheduler is not None:
            self._parts["scheduler"] = scheduler

    def state_dict(self) -> dict[str, Any]:
        """Return the states by name; tensors are those of the parts, not copies."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def snapshot(self) -> dict[str, Any]:
        """Return the states as ``state_dict`` does; the optimizer's next step is the first change
        to them.

        A model's buffers may change in its forward pass, so they are copied.
        """
        states = self.state_dict()
        buffers = {name for name, _ in self._model.named_buffers()}
        states["model"] = {
            name: tensor.clone() if name in buffers else tensor
            for name, tensor in states["model"].items()
        }
        return states

    def devices(self) -> dict[str, str]:
        """Return where tensors of the optimizer are that are not where they would be by default."""
        optimizer = self._parts.get("optimizer")
        return {} if optimizer is None else unusual_devices(optimizer)

    def check_model(self, states: Mapping[str, Any], source: str) -> None:
        """Raise CheckpointError if states by name are of another model.

        PyTorch detects that only once the other weights are loaded.
        """
        saved, model = states.get("model"), self._parts.get("model")
        if saved is None or model is None:
            return
        own = model.state_dict()
        for name in sorted(own.keys() & saved):
            before, now = _shape(saved[name]), _shape(own[name])
            if before != now:
                raise other_model(f"{name} had the shape {before}, and has {now}", source)
        # Where a module has such a hook, it may rename what was saved.
        if not any(module._load_state_dict_pre_hooks for module in model.modules()):
            for name in sorted(own.keys() ^ saved):
                where = "the model" if name in own else "the checkpoint"
                raise other_model(f"{name} is only in {where}", source)

    def weight_differences(self, states: Mapping[str, Any]) -> list[Difference]:
        """Return which weights had another dtype or shape in states by name."""
        saved = states.get("model", {})
        own = self._parts["model"].state_dict() if "model" in self._parts else {}
        common = own.keys() & saved
        before, now = ({f"weights {n}": _form(v[n]) for n in common} for v in (saved, own))
        return find_differences(before, now)

    def load_state_dict(
        self,
        states: Mapping[str, Any],
        source: str,
        devices: Mapping[str, str] | None = None,
        skipped: Container[str] = (),
    ) -> None:
        """Load states by name, but those to be skipped.

        ``devices`` are as for ``load_optimizer_state``. Raise CheckpointError if ``source`` lacks
        the state of a part, or has one that does not fit.
        """
        loaded = {name: part for name, part in self._parts.items() if name not in skipped}
        for name in loaded:
            if name not in states:
                raise CheckpointError(
                    f"{source} does not contain the state of the {name}",
                    hint="attach the same objects as when it was saved, or use another URI",
                )
        optimizer = loaded.pop("optimizer", None)
        if optimizer is not None:
            load_optimizer_state(optimizer, states["optimizer"], devices)
        for name, part in loaded.items():
            _load_part(name, part, states[name], source)


def _load_part(name: str, part: Any, state: Any, source: str) -> None:
    try:
        part.load_state_dict(state)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        lines = [line.strip() for line in str(e).splitlines()] or [type(e).__name__]
        # PyTorch's first line only names the class.
        raise other_model(f"its {name} does not fit: {' '.join(lines[1:] or lines)}", source) from e


def _form(value: Any) -> str:
    if not isinstance(value, Tensor):
        return NONE
    return f"{str(value.dtype).removeprefix('torch.')} {_shape(value)}"


def _shape(value: Any) -> list[int]:
    return list(getattr(value, "shape", ()))


def runtime_conditions() -> dict[str, str]:
    """Return this process' conditions. Two processes with equal ones compute the same bits."""
    found = {
        "torch": str(torch.__version__),
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "threads": str(torch.get_num_threads()),
        "CPU kernels": torch.backends.cpu.get_cpu_capability(),
        "matmul precision": torch.get_float32_matmul_precision(),
    }
    if torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
        found["CUDA"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        found["TF32"] = str(torch.backends.cuda.matmul.allow_tf32)
        found["ordered kernels"] = str(torch.are_deterministic_algorithms_enabled())
    return found


def nondeterministic_kernels() -> str | None:
    """Return why this process may not even repeat its own result, or None."""
    if torch.cuda.is_available() and not torch.are_deterministic_algorithms_enabled():
        return "CUDA kernels may add in any order without torch.use_deterministic_algorithms(True)"
    return None


def changed_conditions(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what differs, as "threads 1 became 2"; settings are compared as a recipe."""
    names = sorted((before.keys() | now.keys()) - {*CONDITIONS, RECIPE})
    return [
        f"{name} {before.get(name, 'unknown')} became {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def encode_conditions(conditions: dict[str, str]) -> tuple[str, ...]:
    """Return the conditions in the form that ranks exchange."""
    return tuple(f"{name}={value}" for name, value in conditions.items())


def rank_differences(members: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the reported conditions in which ranks differ, so that their bits differ."""
    if len(set(members)) <= 1:
        return []
    common = set(members[0]).intersection(*members)
    other = sorted({condition for each in members for condition in each} - common)
    return [f"members differ: {', '.join(other)}"]


class ExactnessGuarantee:
    """The guarantee so far: "exact", or "close" and everything that voided it."""

    def __init__(self, voided: list[str] | None = None) -> None:
        self.voided = [] if voided is None else voided

    def void(self, *reasons: str) -> None:
        """Record that the result may differ in its last bits from now on, each reason once."""
        self.voided += [reason for reason in reasons if reason not in self.voided]

    def __str__(self) -> str:
        return f"close: {'; '.join(self.voided)}" if self.voided else "exact"
