"""What a training run resumes with: weights, optimizer, schedule."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError


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
