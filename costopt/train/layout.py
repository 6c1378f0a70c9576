"""Where in one flat vector each number lies that a step sums over the shards."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from costopt.domain.errors import CostoptError


class GradientLayout:
    """The gradients of a model's trainable parameters, then the running statistics of its
    normalizations, in an order that never changes.

    Running statistics (BatchNorm) of a step are the mean over the shards of what each made of
    those before the step. Sums are taken in float32, in float64 where a parameter is of that.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, parameter in named:
            if not parameter.dtype.is_floating_point:
                raise CostoptError(
                    f"gradients of {name} ({parameter.dtype}) cannot be summed in shards",
                    hint="only real parameters can be trained with virtual shards",
                )
        self.parameters = [parameter for _, parameter in named]
        tracked = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
        self._statistics = [
            buffer
            for module in tracked
            for buffer in (module.running_mean, module.running_var)
            if buffer is not None
        ]
        self._counts = [
            module.num_batches_tracked
            for module in tracked
            if module.num_batches_tracked is not None
        ]
        self._tensors: list[Tensor] = [*self.parameters, *self._statistics]
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.length = sum(self._sizes)
        wide = any(t.dtype is torch.float64 for t in self._tensors)
        self.dtype = torch.float64 if wide else torch.float32
        self.device = self.parameters[0].device if named else torch.device("cpu")
        self._before: list[Tensor] = []

    @property
    def slots(self) -> int:
        """How many tensors the vector holds."""
        return len(self._tensors)

    def vector(self, length: int) -> Tensor:
        """A flat vector of at least the layout's length, with undefined content."""
        return torch.empty(max(length, self.length), dtype=self.dtype, device=self.device)

    def views(self, vector: Tensor) -> list[Tensor]:
        """The slot of each tensor."""
        slots = torch.split(vector[: self.length], self._sizes)
        return [slot.view_as(t) for slot, t in zip(slots, self._tensors, strict=True)]

    def begin_shard(self) -> None:
        """Every shard of a step starts from the same statistics."""
        if self._before:
            for buffer, before in zip(
                [*self._statistics, *self._counts], self._before, strict=True
            ):
                buffer.copy_(before)
        else:
            self._before = [buffer.clone() for buffer in [*self._statistics, *self._counts]]

    def found(self) -> list[Tensor | None]:
        """What a shard made: gradients, None where a parameter has none, then statistics."""
        return [*(parameter.grad for parameter in self.parameters), *self._statistics]

    def drop_gradients(self) -> None:
        """Leave none in the parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def load_gradients(self, views: list[Tensor], present: list[bool]) -> None:
        """Make the slots gradients, None where no rank had any, and statistics."""
        count = len(self.parameters)
        for parameter, view, has in zip(self.parameters, views[:count], present, strict=False):
            parameter.grad = view.to(parameter.dtype) if has else None
        for buffer, view in zip(self._statistics, views[count:], strict=True):
            buffer.copy_(view)
        if self._before:
            for counter, before in zip(
                self._counts, self._before[len(self._statistics) :], strict=True
            ):
                counter.copy_(before + 1)
        self._before = []

    def discard(self) -> None:
        """Put the statistics back as they were before the step."""
        if self._before:
            self.begin_shard()
        self._before = []
