"""A state as two runs of bytes, its tensors and everything else, and its copy to shared memory.

Tensors are stored by storage, as torch.save does, so that tied weights stay tied and every bit is
restored. Everything else goes through torch.save and is read with ``weights_only``.
``SnapshotCopy`` copies the tensors at once or while training continues.
"""

from __future__ import annotations

import _thread
import atexit
import copy
import ctypes
import json
import os
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError
from costopt.train.safe_objects import load_objects, pack_objects

LAYOUT = 1
MAX_CONCURRENT_READS = 4
ALIGNMENT = 64
"""In bytes: a cache line, and enough for every data type."""

DTYPE_NAMES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}
TENSORS = (Tensor, nn.Parameter)
IMMUTABLE = frozenset(
    {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size}
)

Leaf = Callable[[int, Any], Any]


@dataclass(frozen=True, slots=True)
class StorageExtent:
    """Where the bytes of a storage are put: those from ``begin`` on.

    ``volatile`` ones are copied at once, since more than optimizers' steps change them.
    """

    offset: int
    size_bytes: int
    storage: torch.UntypedStorage
    begin: int = 0
    volatile: bool = False

    @property
    def address(self) -> int:
        """Return where the first byte is in memory."""
        return self.storage.data_ptr() + self.begin


class CopyLayout(Protocol):
    """What ``SnapshotCopy`` copies: tensors, and then the rest."""

    @property
    def extents(self) -> tuple[StorageExtent, ...]:
        """Return the memory of the tensors."""
        ...

    @property
    def tensor_bytes(self) -> int:
        """Return where the rest begins."""
        ...

    @property
    def is_frozen(self) -> bool:
        """Return whether the rest can be packed later."""
        ...

    def pack(self) -> bytes:
        """Return the rest. Raise CheckpointError for objects that cannot be stored."""
        ...

    def changed(self, min_bytes: int) -> bool:
        """Whether a tensor of this size is known to have changed since the layout was made."""
        ...


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Where the tensors of a state are placed, and the rest of the state.

    ``is_frozen``: the rest was copied or cannot change, so that it may be packed later.
    ``versions`` detect tensors that change: in-place changes increment ``Tensor._version``, which
    views and ``detach()`` share.
    """

    extents: tuple[StorageExtent, ...]
    tensor_bytes: int
    is_frozen: bool
    versions: tuple[tuple[Tensor, int], ...]
    rest: Any
    _records: list[tuple[Any, ...]]

    @classmethod
    def of(cls, state: dict[str, Any]) -> StateLayout:
        """Return the layout of a state without copying its tensors."""
        cut = _Cut()
        rest = _walk(state, cut.leaf, in_place=False)
        return cls(
            tuple(cut.extents), cut.end, cut.is_frozen, tuple(cut.versions), rest, cut.records
        )

    def pack(self) -> bytes:
        """Return all but the bytes of the tensors. Raise CheckpointError for unsafe objects."""
        storages = [(extent.offset, extent.size_bytes) for extent in self.extents]
        index = json.dumps({"layout": LAYOUT, "storages": storages, "tensors": self._records})
        return pack_objects({"index": index, "objects": self.rest})

    def changed(self, min_bytes: int) -> bool:
        """Whether a tensor in a storage this large was changed in place since the layout."""
        return any(
            tensor._version != version and tensor.untyped_storage().nbytes() >= min_bytes
            for tensor, version in self.versions
        )


def rebuild_state(
    objects: bytes, sizes_bytes: Sequence[int], read: Callable[[int], bytes]
) -> dict[str, Any]:
    """Return the state, on the CPU. Its tensors' bytes are cut into parts of ``sizes_bytes``.

    ``read(number)`` returns a part's bytes; several are read concurrently. Raise what it raises,
    CheckpointError for objects that cannot be loaded safely, ValueError if the bytes do not match
    the layout.
    """
    packed = load_objects(objects, "it is complete but holds")
    index = json.loads(packed["index"])
    if index["layout"] != LAYOUT:
        raise ValueError("the state's layout has an unsupported version")
    extents = index["storages"]
    if any(offset + size > sum(sizes_bytes) for offset, size in extents):
        raise ValueError("the tensors reach beyond the bytes that were saved")
    # Separate storages, so that a tensor that is retained does not retain all the others.
    storages = [torch.empty(size, dtype=torch.uint8) for _, size in extents]
    begins = [0, *accumulate(sizes_bytes)]
    with ThreadPoolExecutor(MAX_CONCURRENT_READS) as pool:
        poured = [
            pool.submit(lambda n: _pour(storages, extents, begins[n], read(n)), number)
            for number in range(len(sizes_bytes))
        ]
    for each in poured:
        each.result()
    tensors = {record[0]: record[1:] for record in index["tensors"]}

    def fill(number: int, value: Any) -> Any:
        return _tensor(storages, *tensors.pop(number)) if number in tensors else value

    state = _walk(packed["objects"], fill, in_place=True)
    if tensors or not isinstance(state, dict):
        raise ValueError("the state does not contain the layout of its tensors")
    return state


@dataclass(slots=True)
class _Cut:
    """Replaces the tensors in a state, and lays their storages out."""

    extents: list[StorageExtent] = field(default_factory=list)
    records: list[tuple[Any, ...]] = field(default_factory=list)
    versions: list[tuple[Tensor, int]] = field(default_factory=list)
    is_frozen: bool = True
    end: int = 0
    _numbers: dict[tuple[torch.device, int, int], int] = field(default_factory=dict)

    def leaf(self, number: int, value: Any) -> Any:
        kind = type(value)
        if kind in IMMUTABLE:
            return value
        if kind not in TENSORS or not _is_plain(value):
            self.is_frozen = False
            return value
        record = (
            number,
            self._storage(value),
            DTYPE_NAMES[value.dtype],
            value.shape,
            value.stride(),
            value.storage_offset(),
            value.requires_grad,
            kind is nn.Parameter,
        )
        self.records.append(record)
        if not value.is_inference():
            self.versions.append((value, value._version))
        return None

    def _storage(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        key = (tensor.device, storage.data_ptr(), size)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.extents)
            # Forward passes change small buffers (batch norm).
            is_volatile = size < SMALL_BYTES
            self.extents.append(StorageExtent(self.end, size, storage, 0, is_volatile))
            self.end += -(-size // ALIGNMENT) * ALIGNMENT
        return number


def _is_plain(value: Tensor) -> bool:
    """Whether a tensor is fully described by its storage, type and shape."""
    return (
        value.layout is torch.strided
        and value.dtype in DTYPE_NAMES
        and value.numel() > 0
        and value.device.type != "meta"
        and not (value.is_conj() or value.is_neg() or value.__dict__)
    )


def _walk(value: Any, leaf: Leaf, *, in_place: bool) -> Any:
    """Replace every leaf by ``leaf(its number, it)``. Numbers follow from the structure alone.

    Containers are dict, OrderedDict, list and tuple, not their subclasses; any other object in a
    state is one leaf. A container that occurs twice is walked once.
    """
    seen: dict[int, Any] = {}
    count = 0

    def visit(item: Any) -> Any:
        nonlocal count
        if id(item) in seen:
            return seen[id(item)]
        if type(item) in (dict, OrderedDict):
            target = seen[id(item)] = item if in_place else copy.copy(item)
            for key, inner in item.items():
                target[key] = visit(inner)
            return target
        if type(item) is list:
            target = seen[id(item)] = item if in_place else item[:]
            for index, inner in enumerate(item):
                target[index] = visit(inner)
            return target
        if type(item) is tuple:
            target = seen[id(item)] = tuple(visit(inner) for inner in item)
            return target
        count += 1
        return leaf(count, item)

    return visit(value)


def _pour(
    storages: list[Tensor], extents: Sequence[tuple[int, int]], begin: int, part: bytes
) -> None:
    """Copy the bytes from ``begin`` on into the storages to which they belong."""
    source = ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p).value or 0
    end = begin + len(part)
    number = max(0, bisect_right(extents, begin, key=lambda extent: extent[0]) - 1)
    for storage, (offset, size) in zip(storages[number:], extents[number:], strict=True):
        first, last = max(offset, begin), min(offset + size, end)
        if offset >= end:
            break
        if first < last:
            target = storage.data_ptr() + first - offset
            ctypes.memmove(target, source + first - begin, last - first)


def _tensor(
    storages: list[Tensor],
    storage: int,
    dtype: str,
    size: list[int],
    stride: list[int],
    offset: int,
    requires_grad: bool,
    is_parameter: bool,
) -> Tensor:
    untyped = storages[storage].untyped_storage()
    tensor = torch.empty(0, dtype=getattr(torch, dtype)).set_(untyped, offset, size, stride)
    if is_parameter:
        return nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


SMALL_BYTES = 1 << 16
"""Smaller storages of an unknown kind are copied at once, and not compared afterwards."""
MODIFIED_DURING_COPY = "the state was changed while it was copied"

_overlapped: set[SnapshotCopy] = set()
"""Copies in progress in threads; a step of any optimizer waits for them."""
_has_hook = False


class SnapshotCopy:
    """A copy in progress, or done. ``was_changed``: it failed because tensors were changed."""

    def __init__(
        self,
        layout: CopyLayout,
        reserve: Callable[[int], SharedMemory],
        done: Callable[[int], None],
        *,
        overlap: bool,
    ) -> None:
        """``reserve`` returns an arena of a size; ``done`` is called once, when all is copied, with
        the number of bytes that follow those of the tensors.

        With ``overlap`` a thread copies, and the tensors must not change before ``join``, which
        then returns the error; a step of a ``torch.optim.Optimizer`` waits for that. Without it
        errors are raised here as CheckpointError.
        """
        self._layout, self._reserve, self._done = layout, reserve, done
        self.was_changed = False
        self._error: CheckpointError | None = None
        self._ended, self._of_pid = threading.Event(), os.getpid()  # a fork has no such thread
        self._large = layout.extents
        self._small: tuple[tuple[int, bytes], ...] = ()
        self._objects = None if overlap and layout.is_frozen else layout.pack()
        if overlap:
            self._large = tuple(e for e in layout.extents if not e.volatile)
            self._small = tuple((e.offset, _bytes(e)) for e in layout.extents if e.volatile)
            _hold_optimizers_for(self)
            # Thread.start would wait until it runs: 10 ms where other processes want the processor.
            _thread.start_new_thread(self._run, ())
        else:
            self._copy()
            self._ended.set()

    def is_done(self) -> bool:
        """Whether the copy is complete, or has failed."""
        return self._ended.is_set() or self._of_pid != os.getpid()

    def join(self) -> CheckpointError | None:
        """Wait for the copy; return why it failed, or None. A failed copy is never used."""
        if self._of_pid == os.getpid():
            self._ended.wait()
        _overlapped.discard(self)
        return self._error

    def _run(self) -> None:
        try:
            self._copy()
        except CheckpointError as error:
            self._error = error
        finally:
            self._ended.set()

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
    """Make every optimizer's next step, and the process' end, wait for a copy.

    ``Tensor._version`` does not detect all steps: fused kernels and DTensors' local shards do not
    increment it (torch 2.13). A hook that removes itself breaks PyTorch's iteration over the hooks.
    """
    global _has_hook  # noqa: PLW0603
    if not _has_hook:
        _has_hook = True
        register_optimizer_step_pre_hook(_wait_for_copies)
        atexit.register(_wait_for_copies)
    _overlapped.add(snapshot)


def _wait_for_copies(*_: object) -> None:
    for snapshot in tuple(_overlapped):
        snapshot.join()


def _bytes(extent: StorageExtent) -> bytes:
    if extent.storage.device.type == "cpu":
        return ctypes.string_at(extent.address, extent.size_bytes)
    return _flat(extent).cpu().numpy().tobytes()


def _copy_all(extents: Sequence[StorageExtent], target: int, arena: SharedMemory) -> None:
    devices: dict[torch.device, list[StorageExtent]] = {}
    for extent in extents:
        if extent.storage.device.type == "cpu":
            ctypes.memmove(target + extent.offset, extent.address, extent.size_bytes)
        else:
            devices.setdefault(extent.storage.device, []).append(extent)
    for device, found in devices.items():
        _copy_from_gpu(device, found, target, arena)


_pinned: weakref.WeakSet[SharedMemory] = weakref.WeakSet()


def _copy_from_gpu(
    device: torch.device, extents: Sequence[StorageExtent], target: int, arena: SharedMemory
) -> None:
    """Copy beside the kernels, through memory that is pinned once. Not tried on a GPU."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if arena not in _pinned and int(runtime.cudaHostRegister(target, arena.size_bytes, 0)) == 0:
        _pinned.add(arena)
        weakref.finalize(arena, runtime.cudaHostUnregister, target)
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    # What was launched before has made the values; what changes them next waits for this copy.
    stream.wait_stream(torch.cuda.default_stream(device))
    with torch.cuda.stream(stream):
        for extent in extents:
            size, offset = extent.size_bytes, extent.offset
            copy = torch.frombuffer(arena.map, dtype=torch.uint8, count=size, offset=offset)
            copy.copy_(_flat(extent), non_blocking=True)
    stream.synchronize()


def _flat(extent: StorageExtent) -> Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=extent.storage.device)
    return flat.set_(extent.storage)[extent.begin : extent.begin + extent.size_bytes]
