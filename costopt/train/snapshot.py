"""Copies the tensors of a state into shared memory, at once or while training goes on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from costopt.checkpoint.arena import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.train.state_layout import StateLayout, StorageExtent

SMALL_BYTES = 1 << 16
"""What is smaller is always copied at once: forward passes change such buffers, as batch norm's."""
MODIFIED_DURING_COPY = "the state was changed while it was copied"

_overlapped: set[SnapshotCopy] = set()
"""Copies that threads make; a step of any optimizer waits for them."""
_has_hook = False


class SnapshotCopy:
    """A copy under way, or done. ``was_changed`` says that it failed as tensors were changed."""

    def __init__(
        self,
        layout: StateLayout,
        reserve: Callable[[int], SharedMemory],
        done: Callable[[int], None],
        *,
        overlap: bool,
    ) -> None:
        """``reserve`` gives an arena of a size; ``done`` is told once, when all is copied, how many
        bytes follow those of the tensors.

        With ``overlap`` a thread copies, and the tensors must not change before ``join``, which
        then tells of errors; a step of a ``torch.optim.Optimizer`` waits for that. Without it they
        are raised here as CheckpointError.
        """
        self._layout = layout
        self._reserve = reserve
        self._done = done
        self.was_changed = False
        self._error: CheckpointError | None = None
        self._thread: threading.Thread | None = None
        self._large = layout.extents
        self._small: tuple[tuple[int, bytes], ...] = ()
        self._objects = None if overlap and layout.is_frozen else layout.pack()
        if overlap:
            self._large = tuple(e for e in layout.extents if not _is_small(e))
            self._small = tuple((e.offset, _bytes(e)) for e in layout.extents if _is_small(e))
            self._thread = threading.Thread(target=self._run, name="costopt-snapshot")
            _hold_optimizers_for(self)
            self._thread.start()
        else:
            self._copy()

    def is_done(self) -> bool:
        """Whether the copy is whole, or has failed."""
        return self._thread is None or not self._thread.is_alive()

    def join(self) -> CheckpointError | None:
        """Wait for the copy; why it failed, or None. What a failed one copied goes nowhere."""
        if self._thread is not None:
            self._thread.join()
            _overlapped.discard(self)
        return self._error

    def _run(self) -> None:
        try:
            self._copy()
        except CheckpointError as error:
            self._error = error

    def _copy(self) -> None:
        layout = self._layout
        objects = layout.pack() if self._objects is None else self._objects
        arena = self._reserve(layout.tensor_bytes + len(objects))
        target = ctypes.addressof(ctypes.c_char.from_buffer(arena.map))
        _copy_all(self._large, target, arena)
        for offset, data in self._small:
            ctypes.memmove(target + offset, data, len(data))
        ctypes.memmove(target + layout.tensor_bytes, objects, len(objects))
        if layout.changed(SMALL_BYTES):
            self.was_changed = True
            raise CheckpointError(
                MODIFIED_DURING_COPY,
                hint="call copied() before the state changes, or save without overlap",
            )
        self._done(len(objects))


def _hold_optimizers_for(snapshot: SnapshotCopy) -> None:
    """Let every optimizer's next step wait for a copy.

    ``Tensor._version`` alone does not notice such a step: fused kernels do not count it up, nor do
    steps of DTensors count up that of their local shards (torch 2.13). The one hook stays
    registered, since a hook that removes itself breaks PyTorch's iteration over the hooks.
    """
    global _has_hook  # noqa: PLW0603
    if not _has_hook:
        _has_hook = True
        register_optimizer_step_pre_hook(_wait_for_copies)
    _overlapped.add(snapshot)


def _wait_for_copies(*_: object) -> None:
    for snapshot in tuple(_overlapped):
        snapshot.join()


def _is_small(extent: StorageExtent) -> bool:
    return extent.size_bytes < SMALL_BYTES


def _bytes(extent: StorageExtent) -> bytes:
    storage = extent.storage
    if storage.device.type != "cpu":
        storage = storage.cpu()  # type: ignore[no-untyped-call]
    return ctypes.string_at(storage.data_ptr(), extent.size_bytes)


def _copy_all(extents: Sequence[StorageExtent], target: int, arena: SharedMemory) -> None:
    for extent in extents:
        storage = extent.storage
        if storage.device.type == "cpu":
            ctypes.memmove(target + extent.offset, storage.data_ptr(), extent.size_bytes)
        else:
            _copy_from_device(storage, extent.offset, arena)


def _copy_from_device(storage: torch.UntypedStorage, offset: int, arena: SharedMemory) -> None:
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    size = storage.nbytes()
    torch.frombuffer(arena.map, dtype=torch.uint8, count=size, offset=offset).copy_(flat)
