"""The processes that train together, and the one reduction that each step needs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True, slots=True)
class Decision:
    """What all ranks agreed on in a step: any may ask to stop, rank 0 says when to save."""

    stop: bool
    save: bool


class Group:
    """Rank and size from torchrun's variables; a single process where there are none."""

    def __init__(self) -> None:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value by rank, on rank 0; an empty list on the others.

        Values travel as the bytes of torch.save: gather_object pickles tensors by a legacy path
        that fails on untyped storages.
        """
        if self.size == 1:
            return [value]
        packed: list[bytes] | None = [b""] * self.size if self.rank == 0 else None
        dist.gather_object(_pack(value), packed, dst=0)
        return [_unpack(data) for data in packed or []]

    def share(self, model: nn.Module) -> None:
        """Give every rank the weights and buffers of rank 0."""
        if self.size > 1:
            for tensor in model.state_dict().values():
                if isinstance(tensor, Tensor):
                    dist.broadcast(tensor, src=0)

    def leave(self) -> None:
        """Close the group in good order."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _pack(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpack(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


class Reducer:
    """Averages gradients and agrees on a decision in one all-reduce of a fixed layout.

    The layout [gradients | who has a gradient | stop, save] never changes, so neither does the
    order of the sums: at one world size the result is the same to the bit, however often the
    gang was formed anew. (DDP rebuilds its buckets after the first step and with them the order.)
    A model in DDP has averaged its gradients already; only the decision is reduced then.
    """

    def __init__(self, group: Group, model: nn.Module) -> None:
        self._group = group
        wrapped = isinstance(model, DistributedDataParallel)
        alone = wrapped or group.size == 1
        self._parameters = [p for p in model.parameters() if p.requires_grad and not alone]
        sizes = [p.numel() for p in self._parameters]
        count = len(sizes)
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._flat = torch.zeros(sum(sizes) + count + 2, dtype=torch.float32, device=device)
        gradients, self._presence, self._flags = torch.split(self._flat, [sum(sizes), count, 2])
        self._slots = [
            slot.view_as(parameter)
            for slot, parameter in zip(torch.split(gradients, sizes), self._parameters, strict=True)
        ]

    def reduce(self, *, stop: bool, save: bool) -> Decision:
        """Average the gradients in place. A parameter without a gradient anywhere keeps none."""
        if self._group.size == 1:
            return Decision(stop, save)
        self._fill(stop=stop, save=save and self._group.rank == 0)
        dist.all_reduce(self._flat)
        counts = self._presence.tolist()
        for parameter, slot, count in zip(self._parameters, self._slots, counts, strict=True):
            if count == 0:
                continue
            average = slot / self._group.size
            if parameter.grad is None:
                parameter.grad = average.to(parameter.dtype)
            else:
                parameter.grad.copy_(average)
        stops, saves = self._flags.tolist()
        return Decision(stops > 0, saves > 0)

    def _fill(self, *, stop: bool, save: bool) -> None:
        self._flat.zero_()
        for index, (parameter, slot) in enumerate(zip(self._parameters, self._slots, strict=True)):
            if parameter.grad is not None:
                slot.copy_(parameter.grad)
                self._presence[index] = 1.0
        self._flags[0] = float(stop)
        self._flags[1] = float(save)
