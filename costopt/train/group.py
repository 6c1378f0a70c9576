"""The processes that train together, the transfer of a state between them, and their agreement.

``broadcast_state`` copies a whole state from one rank to the others, tensors as raw bytes. In each
step every rank casts a ``StepVote``; the reduction turns the votes into one ``StepAgreement``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from costopt.train.safe_objects import load_objects, pack_objects


class PeerLostError(Exception):
    """A collective cannot end: a peer is gone, or the gang is over. The group must form again."""


class RankGroup:
    """Rank and size from torchrun's variables; a single process without them.

    Every method is collective: all ranks call it in the same order. ``size`` and ``rank`` of an
    elastic group change when it forms again, and never within a step.
    """

    generation: int | None = None
    """The gang's number if the group is elastic, else None."""

    def __init__(self) -> None:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        # The process group's own methods: an elastic group has others each time that it forms.
        self._links: Any = dist.group.WORLD if dist.is_initialized() else None
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.device = _device(dist.get_backend() if dist.is_initialized() else "gloo")

    def add(self, tensor: Tensor) -> None:
        """Sum over the ranks, in place, in the backend's order."""
        if self.size > 1:
            self.settle(self._links.allreduce([tensor]))

    def exchange(
        self, received: Tensor, sent: Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Any:
        """Begin to send each rank its part of ``sent`` (1-d), and to receive one from each."""
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
        """Wait for the works that were begun."""
        for work in works:
            work.wait()

    def broadcast(self, value: Any, source: int = 0) -> Any:
        """Return the source's value on every rank: plain values and tensors."""
        if self.size == 1:
            return value
        data = pack_objects(value) if self.rank == source else b""
        size = torch.tensor([len(data)], dtype=torch.int64, device=self.device)
        self.send(size, source)
        if self.rank == source:
            # A copy, as a tensor over read-only bytes may be written to without an error.
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        else:
            content = torch.empty(int(size.item()), dtype=torch.uint8, device=self.device)
        self.send(content, source)
        return value if self.rank == source else load_objects(content.cpu().numpy().tobytes())

    def is_join_pending(self) -> bool:
        """Whether a process waits to join: never if the group is fixed."""
        return False

    def share_vote(self, vote: StepVote) -> StepVote:
        """Return the vote of all processes of a sharded copy."""
        return vote

    def agreeing(self) -> AbstractContextManager[None]:
        """Make a lost peer an error on all processes of a sharded copy, or on none of them."""
        return nullcontext()

    def fence(self) -> None:
        """Raise PeerLostError if the others may have continued without this process.

        Called before a reduction's result is used, and when a checkpoint could not be saved or
        read.
        """

    def publish_state(self, step: int | None) -> None:
        """Report that this process holds the state after ``step`` steps; None: of no step."""

    def leave(self) -> None:
        """Close the group in good order."""
        self._links = None
        if dist.is_initialized():
            dist.destroy_process_group()


def _device(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "nccl" else "cpu")


BUCKET_BYTES = 64 << 20
TENSOR_MARKER = "\0tensor"


def broadcast_state(group: RankGroup, state: Any, source: int) -> Any:
    """Return the source's state on every rank, bit for bit, on the group's device.

    A state is dictionaries, lists and plain values with tensors in them. Collective. Raise
    PeerLostError if a peer is lost.
    """
    if group.size == 1:
        return state
    tensors: list[Tensor] = []
    skeleton = group.broadcast(_take_out(state, tensors) if group.rank == source else None, source)
    if group.rank == source:
        for bucket in _buckets(tensors):
            group.send(torch.cat([_bytes(t).to(group.device) for t in bucket]), source)
        return state
    tensors = [
        torch.empty(shape, dtype=dtype, device=group.device)
        for dtype, shape in _described(skeleton)
    ]
    for bucket in _buckets(tensors):
        content = torch.empty(
            sum(t.numel() * t.element_size() for t in bucket),
            dtype=torch.uint8,
            device=group.device,
        )
        group.send(content, source)
        parts = torch.split(content, [t.numel() * t.element_size() for t in bucket])
        for tensor, part in zip(bucket, parts, strict=True):
            _bytes(tensor).copy_(part)
    return _put_back(skeleton, iter(tensors))


def _take_out(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return (TENSOR_MARKER, value.dtype, list(value.shape))
    if isinstance(value, dict):
        return {key: _take_out(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_take_out(item, tensors) for item in value])
    return value


def _described(value: Any) -> Iterator[tuple[torch.dtype, list[int]]]:
    if _is_mark(value):
        yield value[1], value[2]
    elif isinstance(value, dict):
        for item in value.values():
            yield from _described(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _described(item)


def _put_back(value: Any, tensors: Iterator[Tensor]) -> Any:
    if _is_mark(value):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _put_back(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_put_back(item, tensors) for item in value])
    return value


def _is_mark(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and value[0] == TENSOR_MARKER


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield runs of tensors, each of about BUCKET_BYTES; the same on every rank."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        bucket.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


@dataclass(frozen=True, slots=True)
class StepVote:
    """What a rank requests in a step.

    ``stop``: this rank was asked to leave. ``save`` counts from rank 0 only. ``part``: a process
    waits to join, so the gang should form again after this step. ``weights`` is a digest of weights
    that all ranks should hold alike, ``unit_weights`` those of all processes of a sharded copy.
    """

    stop: bool = False
    save: bool = False
    part: bool = False
    weights: float = 0.0
    unit_weights: tuple[float, ...] = ()

    def numbers(self) -> tuple[float, float, float, float]:
        """Return the vote as it travels with the gradients."""
        return float(self.stop), float(self.save), float(self.part), self.weights


VOTE_NUMBERS = len(StepVote().numbers())


@dataclass(frozen=True, slots=True)
class StepAgreement:
    """What all ranks have agreed on: the same on every rank.

    ``stops`` counts the ranks that leave; ``loss`` is the mean over the shards whose loss was
    observed. ``weights`` are the digests of all ranks.
    """

    stops: int
    save: bool
    part: bool = False
    loss: float | None = None
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, votes: Sequence[Sequence[float]], loss: float | None = None) -> StepAgreement:
        """Return the agreement from every rank's vote in numbers, by rank."""
        stops = sum(vote[0] > 0 for vote in votes)
        digests = tuple(vote[3] for vote in votes)
        return cls(stops, votes[0][1] > 0, any(vote[2] > 0 for vote in votes), loss, digests)
