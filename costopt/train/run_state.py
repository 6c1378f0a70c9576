"""What a run resumes with; exactness conditions.

Where a run stands: everything that a checkpoint or a peer must hold for it to go on.

What a training run resumes with: weights, optimizer, schedule.

What bit-equality depends on besides the code: recorded, and compared when it may change.
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
    """The parts, the position, and what voided bit-equality so far.

    Nothing depends on which process computes what, so rank 0's state is that of all. ``loss`` is
    what was observed in the last step. ``skipped`` steps of data were left out by rollbacks, of
    which there were ``rollbacks``.
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
        """The whole state; its tensors may be read until the optimizer steps."""
        return {**self._shared(), "parts": self._parts.snapshot()}

    def load(self, state: Mapping[str, Any], whence: str) -> None:
        """Go on from a checkpoint. Raises CheckpointError where it lacks a part."""
        self._take_shared(state, whence)
        self.guarantee.void(*changed_conditions(state["conditions"], self._conditions))

    def align(self, source: int) -> None:
        """Take over the state of a rank. Collective; raises PeerLostError."""
        own = self._shared() if self._group.rank == source else None
        state = broadcast_state(self._group, own, source)
        if self._group.rank != source:
            self._take_shared(state, "a peer")

    def compare(self, members: Sequence[tuple[str, ...]]) -> None:
        """Void what ranks whose conditions differ cannot hold."""
        self.guarantee.void(*rank_differences(members))

    def check_rank_conditions(self) -> None:
        """As ``compare``, with what each rank of a fixed group is asked for. Collective."""
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

    def _take_shared(self, state: Mapping[str, Any], whence: str) -> None:
        self._parts.load_state_dict(state["parts"], whence)
        self.step = state["step"]
        self.loss = state["loss"]
        self.skipped = state["skipped"]
        self.rollbacks = max(self.rollbacks, state["rollbacks"])
        self.guarantee.void(*state["voided"])


class Stateful(Protocol):
    """Anything that can be saved and restored, such as a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take up a state."""
        ...


class TrainingState:
    """Model, optimizer and scheduler as one state."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, scheduler: Stateful | None) -> None:
        self._model = model
        self._parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
        if scheduler is not None:
            self._parts["scheduler"] = scheduler

    def state_dict(self) -> dict[str, Any]:
        """By name; tensors are those of the parts, not copies."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def snapshot(self) -> dict[str, Any]:
        """As ``state_dict``; nothing in it changes before the optimizer steps. A model's buffers
        may change in its forward pass, so they are copied."""
        states = self.state_dict()
        buffers = {name for name, _ in self._model.named_buffers()}
        states["model"] = {
            name: tensor.clone() if name in buffers else tensor
            for name, tensor in states["model"].items()
        }
        return states

    def load_state_dict(self, states: dict[str, Any], whence: str) -> None:
        """Take up states by name. Raises CheckpointError where ``whence`` holds none of a part."""
        for name, part in self._parts.items():
            if name not in states:
                raise CheckpointError(
                    f"{whence} holds no state of the {name}",
                    hint="attach what was attached when it was saved, or use another URI",
                )
            part.load_state_dict(states[name])


def runtime_conditions() -> dict[str, str]:
    """Those of this process. Two that have the same compute the same bits."""
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
    """Why this process may not even repeat itself, or None."""
    if torch.cuda.is_available() and not torch.are_deterministic_algorithms_enabled():
        return "CUDA kernels may add in any order without torch.use_deterministic_algorithms(True)"
    return None


def changed_conditions(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs, as "threads 1 became 2"."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} {before.get(name, 'unknown')} became {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def encode_conditions(conditions: dict[str, str]) -> tuple[str, ...]:
    """As ranks tell them to each other."""
    return tuple(f"{name}={value}" for name, value in conditions.items())


def rank_differences(members: Sequence[tuple[str, ...]]) -> list[str]:
    """Where ranks that train together, of whom each has told its own, do not compute the same
    bits."""
    if len(set(members)) <= 1:
        return []
    common = set(members[0]).intersection(*members)
    other = sorted({condition for each in members for condition in each} - common)
    return [f"members differ: {', '.join(other)}"]


class ExactnessGuarantee:
    """What held so far: "exact", or "close" and everything that voided it."""

    def __init__(self, voided: list[str] | None = None) -> None:
        self.voided = [] if voided is None else voided

    def void(self, *reasons: str) -> None:
        """From here on the result may differ in its last bits. Said once for each reason."""
        self.voided += [reason for reason in reasons if reason not in self.voided]

    def __str__(self) -> str:
        return f"close: {'; '.join(self.voided)}" if self.voided else "exact"
