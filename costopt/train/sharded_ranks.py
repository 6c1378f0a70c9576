"""The processes that save and restore a sharded state together: their messages, and their nodes."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from costopt.domain.errors import CheckpointError, CostoptError

T = TypeVar("T")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIMEOUT = timedelta(minutes=30)
"""For what other ranks may take between two messages: reading a large state."""
SHARED_AT_ONCE_BYTES = 64 << 10
"""What is not larger is shared in one message, without one for its size."""


class ShardRanks:
    """Some of the processes, or all. Every method is collective over them, and uses gloo.

    A process without torch.distributed is alone.
    """

    def __init__(self, members: Sequence[int] | None = None) -> None:
        """Form a group of these ranks, by default of all. Collective over all processes, but for a
        single rank.
        """
        world = dist.get_world_size() if dist.is_initialized() else 1
        own = dist.get_rank() if dist.is_initialized() else 0
        self.members = list(range(world) if members is None else members)
        self.size = len(self.members)
        self.rank = self.members.index(own) if own in self.members else -1
        self._group: Any = None
        if self.size > 1:
            self._group = dist.new_group(self.members, timeout=TIMEOUT, backend="gloo")

    def alone(self) -> ShardRanks:
        """Return this process as a group of its own."""
        return ShardRanks([self.members[self.rank]])

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._group)
        return found

    def gather_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of all ranks, as many of each; faster than ``gather``.

        Raise CostoptError if a rank is gone.
        """
        found = self._gather_alike(torch.tensor(list(numbers), dtype=torch.float64))
        rows: list[list[float]] = found.tolist()
        return rows

    def gather_rows(self, rows: Sequence[Sequence[int]], length: int) -> list[list[list[int]]]:
        """Return the rows of all ranks, each of ``length``; faster than ``gather``.

        Raise CostoptError if a rank is gone.
        """
        counts = [int(count) for (count,) in self.gather_numbers((len(rows),))]
        own = torch.zeros((max(counts), length), dtype=torch.int64)
        own[: len(rows)] = torch.tensor(list(rows), dtype=torch.int64).view(-1, length)
        found: list[list[list[int]]] = self._gather_alike(own).tolist()
        return [each[:count] for each, count in zip(found, counts, strict=True)]

    def _gather_alike(self, own: Tensor) -> Tensor:
        """Return the tensors of all ranks, of equal shapes, as one with a dimension more."""
        found = torch.empty((self.size, *own.shape), dtype=own.dtype)
        if self.size == 1:
            return found.copy_(own)
        try:
            self._group._allgather_base(found.view(-1), own.view(-1)).wait()
        except RuntimeError as error:
            raise CostoptError(
                f"a process of this shard group is gone: {str(error).splitlines()[0]}",
                hint="start all processes of the group again: they join the others",
            ) from error
        return found

    def share(self, value: Any) -> Any:
        """Return the first rank's value."""
        if self.size == 1:
            return value
        data = pickle.dumps(value) if self.rank == 0 else b""
        packed = len(data).to_bytes(8, "little") + data
        found = self._broadcast(packed[:SHARED_AT_ONCE_BYTES], SHARED_AT_ONCE_BYTES)
        end = 8 + int.from_bytes(found[:8], "little")
        if end > len(found):
            found += self._broadcast(packed[len(found) :], end - len(found))
        return value if self.rank == 0 else pickle.loads(found[8:end])  # noqa: S301 - our own

    def _broadcast(self, data: bytes, size_bytes: int) -> bytes:
        flat = torch.frombuffer(bytearray(data.ljust(size_bytes, b"\0")), dtype=torch.uint8)
        dist.broadcast(flat, self.members[0], group=self._group)
        return flat.numpy().tobytes()

    def together(self, action: Callable[[], T]) -> T:
        """Return what ``action`` returns here, once it has ended on all ranks.

        Where it raises ValueError or CheckpointError on any, raise the first rank's error on all.
        """
        return self.together_max(lambda: (action(), 0.0))[0]

    def together_max(self, action: Callable[[], tuple[T, float]]) -> tuple[T, float]:
        """As ``together``, with the largest of the numbers that ``action`` returns on the ranks."""
        found, error = _attempt(action)
        value, number = (None, 0.0) if found is None else found
        rows = self.gather_numbers([error is not None, number])
        if any(failed for failed, _ in rows):
            raise next(_decode(each) for each in self.gather(_encode(error)) if each) from error
        return cast("T", value), max(each for _, each in rows)

    def on_first(self, action: Callable[[], T]) -> T:
        """Return what ``action`` returns on the first rank, which alone runs it.

        Raise its ValueError or CheckpointError on all.
        """
        value, error = _attempt(action) if self.rank == 0 else (None, None)
        value, raised = self.share((value, _encode(error)))
        if raised is not None:
            raise _decode(raised) from error
        return cast("T", value)


def _attempt(action: Callable[[], T]) -> tuple[T | None, ValueError | CheckpointError | None]:
    try:
        return action(), None
    except (ValueError, CheckpointError) as error:
        return None, error


@dataclass(frozen=True, slots=True)
class CopyRanks:
    """The processes that hold one copy of a model together, and those of them on this node."""

    everyone: ShardRanks
    node: ShardRanks

    @classmethod
    def of(cls, copy: Hashable = None) -> CopyRanks:
        """Return those that pass an equal ``copy``, by default all. Collective over all."""
        world = ShardRanks()
        everyone = world if copy is None else _alike(world, copy)
        return cls(everyone, _alike(world, (copy, _machine())))


def _alike(world: ShardRanks, key: Hashable) -> ShardRanks:
    """Return the processes with an equal key. Collective over all processes."""
    keys = world.gather(key)
    own = None
    for each in dict.fromkeys(keys):
        found = ShardRanks([rank for rank, other in enumerate(keys) if other == each])
        own = found if each == keys[world.rank] else own
    assert own is not None
    return own


def _machine() -> str:
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
    return f"{socket.gethostname()} {boot}"


_Encoded = tuple[str, str | None, str | None]


def _encode(
    error: ValueError | CheckpointError | None,
) -> tuple[str, str | None, str | None] | None:
    """A ValueError says that a checkpoint is not valid, and has neither hint nor code."""
    if isinstance(error, CheckpointError):
        return error.message, error.hint, error.code
    return None if error is None else (str(error), None, None)


def _decode(encoded: _Encoded) -> ValueError | CheckpointError:
    message, hint, code = encoded
    if hint is None and code is None:
        return ValueError(message)
    return CheckpointError(message, hint=hint, code=code)
