"""What makes a training run resume exactly: weights, optimizer, schedule, data and randomness."""

from __future__ import annotations

import random
import sys
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError


class Stateful(Protocol):
    """Anything that can be saved and restored: a scheduler, a data loader, a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take up a state."""
        ...


class Parts:
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


def random_state() -> dict[str, Any]:
    """The generators of this process: Python's, NumPy's where it is loaded, torch's, CUDA's."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": (version, internal, gauss),
        "torch": torch.get_rng_state(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = (name, torch.from_numpy(keys.copy()), position, has_gauss, cached)
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """The inverse of ``random_state``."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy as np

        name, keys, *rest = state["numpy"]
        np.random.set_state((name, keys.numpy(), *rest))
    cuda: list[Tensor] = state.get("cuda", [])
    if cuda and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)
