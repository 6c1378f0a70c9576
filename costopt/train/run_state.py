"""The state of a run: everything that a checkpoint or a peer must hold for training to resume.

That is the weights, optimizer and schedule (``TrainingState``), the position, and the conditions on
which bit-equality depends besides the code: they are recorded, and compared when they may have
changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError
from costopt.train.group import RankGroup, broadcast_state


class RunState:
    """The parts, the position, and what has voided bit-equality so far.

    Nothing depends on which process computes what, so rank 0's state is that of all. ``loss`` is
    what was observed in the last step. ``skipped`` steps of data were skipped by ``rollbacks``
    rollbacks.
    """

    def __init__(
        self,
        parts: TrainingState,
        *,
        group: RankGroup,
        guarantee: ExactnessGuarantee,
        conditions: dict[str, str],
    ) -> None:
        self.step = 0
        self.loss: float | None = None
        self.skipped = 0
        self.rollbacks = 0
        self.guarantee = guarantee
        self._parts, self._group = parts, group
        self._conditions = conditions

    def capture(self) -> dict[str, Any]:
        """Return the whole state; its tensors may be read until the optimizer steps."""
        return {**self._shared(), "parts": self._parts.snapshot()}

    def load(self, state: Mapping[str, Any], source: str) -> None:
        """Resume from a checkpoint. Raise CheckpointError if it lacks a part."""
        self._take_shared(state, source)
        self.guarantee.void(*changed_conditions(state["conditions"], self._conditions))

    def align(self, source: int) -> None:
        """Adopt the state of a rank. Collective. Raise PeerLostError if a peer is lost."""
        own = self._shared() if self._group.rank == source else None
        state = broadcast_state(self._group, own, source)
        if self._group.rank != source:
            self._take_shared(state, "a peer")

    def compare(self, members: Sequence[tuple[str, ...]]) -> None:
        """Void the guarantees that ranks with different conditions cannot keep."""
        self.guarantee.void(*rank_differences(members))

    def check_rank_conditions(self) -> None:
        """As ``compare``, with the conditions of each rank of a fixed group. Collective."""
        own = encode_conditions(self._conditions)
        self.compare([self._group.broadcast(own, rank) for rank in range(self._group.size)])

    def _shared(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "parts": self._parts.state_dict(),
            "skipped": self.skipped,
            "rollbacks": self.rollbacks,
            "conditions": self._conditions,
            "voided": list(self.guarantee.voided),
        }

    def _take_shared(self, state: Mapping[str, Any], source: str) -> None:
        self._parts.load_state_dict(state["parts"], source)
        self.step = state["step"]
        self.loss = state["loss"]
        self.skipped = state["skipped"]
        self.rollbacks = max(self.rollbacks, state["rollbacks"])
        self.guarantee.void(*state["voided"])


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

    def load_state_dict(self, states: dict[str, Any], source: str) -> None:
        """Load states by name. Raise CheckpointError if ``source`` lacks the state of a part."""
        for name, part in self._parts.items():
            if name not in states:
                raise CheckpointError(
                    f"{source} does not contain the state of the {name}",
                    hint="attach the same objects as when it was saved, or use another URI",
                )
            part.load_state_dict(states[name])


def runtime_conditions() -> dict[str, str]:
    """Return this process' conditions. Two processes with equal ones compute the same bits."""
    found = {
        "torch": str(torch.__version__),
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
    """Return what differs, as "threads 1 became 2"."""
    names = sorted(before.keys() | now.keys())
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
