"""The processes that train together, and what they say to each other."""

from __future__ import annotations

import io
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class PeerLostError(Exception):
    """A collective cannot end: a peer is gone, or the gang is over. The group must form anew."""


class RankGroup:
    """Rank and size from torchrun's variables; a single process where there are none.

    Every method is collective: all ranks call it in the same order. ``size`` and ``rank`` of a
    group that forms anew change then, and never within a step.
    """

    generation: int | None = None
    """The gang's number where the group can form anew, else None."""

    def __init__(self) -> None:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self._links: Any = dist.group.WORLD if dist.is_initialized() else None
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.device = _device(dist.get_backend() if dist.is_initialized() else "gloo")

    def add(self, tensor: Tensor) -> None:
        """Sum over the ranks, in place, in whatever order the backend takes."""
        if self.size > 1:
            self.settle(self._links.allreduce([tensor]))

    def exchange(
        self, received: Tensor, sent: Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Any:
        """Begin to send to each rank its part of ``sent`` (1-d), and to receive one from each."""
        return self._links.alltoall_base(received, sent, received_sizes, sent_sizes)

    def collect(self, parts: list[Tensor], own: Tensor) -> Any:
        """Begin to gather a tensor of every rank into ``parts``."""
        return self._links.allgather([parts], [own])

    def concatenate(self, whole: Tensor, own: Tensor) -> None:
        """Gather the ranks' parts, all of one length, into ``whole``."""
        self.settle(self._links._allgather_base(whole, own))

    def send(self, tensor: Tensor, source: int) -> None:
        """Overwrite ``tensor`` with that of ``source``."""
        if self.size > 1:
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = source, 0
            self.settle(self._links.broadcast([tensor], options))

    def settle(self, *works: Any) -> None:
        """Wait for what was begun."""
        for work in works:
            work.wait()

    def broadcast(self, value: Any, source: int = 0) -> Any:
        """The source's value, on every rank: plain values and tensors."""
        if self.size == 1:
            return value
        data = _pack(value) if self.rank == source else b""
        size = torch.tensor([len(data)], dtype=torch.int64, device=self.device)
        self.send(size, source)
        if self.rank == source:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        else:
            content = torch.empty(int(size.item()), dtype=torch.uint8, device=self.device)
        self.send(content, source)
        return value if self.rank == source else _unpack(content.cpu().numpy().tobytes())

    def is_join_pending(self) -> bool:
        """Whether someone wants to join: never where the group is fixed."""
        return False

    def fence(self) -> None:
        """Called before a reduction's result is used, and where a checkpoint could not be saved or
        read; raises PeerLostError where the others may have gone on without this process."""

    def publish_state(self, step: int) -> None:
        """The state of this process is that after ``step`` steps."""

    def leave(self) -> None:
        """Close the group in good order."""
        self._links = None
        if dist.is_initialized():
            dist.destroy_process_group()


def _device(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "nccl" else "cpu")


def _pack(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpack(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
