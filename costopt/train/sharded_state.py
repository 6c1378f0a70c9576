"""The tensors of a model and its optimizer as shards: names, boxes, and the memory of this rank's.

This is the one module that knows how PyTorch shards: DTensor's local tensor is private, and the
public way to it takes milliseconds for many tensors (torch 2.13: 33 ms for 2,200).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from costopt.checkpoint.manifest import TensorSpec
from costopt.checkpoint.sharded.boxes import HeldBox, TensorBox, whole_box
from costopt.checkpoint.sharded.index import ITEM_BYTES, PlacedBox, ShardLayout
from costopt.checkpoint.sharded.writers import Column, assign_writers
from costopt.domain.errors import CheckpointError, CostoptError
from costopt.train.model_recipe import plain_name
from costopt.train.optimizer_state import (
    ON_CPU,
    OWN_SETTINGS,
    Devices,
    default_device,
    other_model,
    place,
    tensors_in,
    unusual_devices,
)
from costopt.train.state_layout import ALIGNMENT, DTYPE_NAMES, StorageExtent

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

MIN_LARGE_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's part of a tensor. ``local`` shares its memory with ``holder``.

    A buffer is ``volatile``: forward passes change it.
    """

    spec: TensorSpec
    box: TensorBox
    holder: Tensor
    local: Tensor
    address: int
    volatile: bool = False

    @property
    def held(self) -> HeldBox:
        """Return the box, for deciding who writes it."""
        return HeldBox(self.spec, self.box, self.box.volume * ITEM_BYTES[self.spec.dtype])

    def is_current(self) -> bool:
        """Whether the memory is still where it was."""
        return local_tensor(self.holder).data_ptr() == self.address


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, any other tensor itself; it shares its memory."""
    return tensor._local_tensor if is_sharded(tensor) else tensor


@dataclass(frozen=True, slots=True)
class ModelMesh:
    """The processes that hold one copy of a model together.

    ``ranks`` are theirs, in order of position. They compute ``data_ranks`` shards of a batch at
    once, this process that of ``data_rank``. ``label`` is the mesh for people, as in "dp 4".
    """

    ranks: tuple[int, ...]
    data_ranks: int
    data_rank: int
    label: str


def find_mesh(model: nn.Module) -> ModelMesh | None:
    """Return the mesh on which a model is sharded; None if it is not.

    Raise CostoptError if it has parameters of which each process would train its own.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    mesh = largest_mesh(trained)
    if mesh is None:
        return None
    ranks = tuple(sorted(mesh.mesh.flatten().tolist()))
    groups = (m._get_fsdp_state()._fsdp_param_group for m in model.modules() if is_fsdp(m))
    data = next((group.mesh_info.mesh for group in groups if group is not None), None)
    shares = [dist.get_rank()] if data is None else data.mesh.flatten().tolist()
    if data is not None and not all(is_sharded(p) for p in trained):
        raise CostoptError(
            "some parameters are sharded and others are not, so each process would train its own",
            hint="call fully_shard(model) on the whole model after its layers",
        )
    return ModelMesh(ranks, len(shares), shares.index(dist.get_rank()), mesh_label(mesh))


def largest_mesh(tensors: Iterable[Tensor]) -> DeviceMesh | None:
    """Return the mesh with the most dimensions; None if no tensor is sharded."""
    meshes = (tensor.device_mesh for tensor in tensors if is_sharded(tensor))
    return max(meshes, key=lambda mesh: mesh.ndim, default=None)


def mesh_sizes(mesh: DeviceMesh) -> tuple[tuple[str, int], ...]:
    """Return the names and sizes of a mesh's dimensions."""
    names = mesh.mesh_dim_names or tuple(f"dim{number}" for number in range(mesh.ndim))
    return tuple(zip(names, mesh.shape, strict=True))


def mesh_label(mesh: DeviceMesh) -> str:
    """Return a mesh for people."""
    return " x ".join(f"{name} {size}" for name, size in mesh_sizes(mesh))


def is_fsdp(module: nn.Module) -> TypeGuard[FSDPModule]:
    """Return whether ``fully_shard`` was applied to a module."""
    return _is_instance(module, "torch.distributed.fsdp", "FSDPModule")


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Return whether a value is a DTensor."""
    return _is_instance(tensor, "torch.distributed.tensor", "DTensor")


def _is_instance(value: object, module: str, name: str) -> bool:
    # Both modules take long to import, and before they are imported nothing is of their classes.
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(value, found)


class ShardedState:
    """Model and optimizer as shards, found once and again only where they have changed."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None) -> None:
        self._model, self._optimizer = model, optimizer
        self._names = {id(t): name for name, t in _named_tensors(model)}
        self._shards: list[Shard] = []
        self._states = -1

    def shards(self) -> list[Shard]:
        """Return this rank's shards in the order of their names.

        Raise CheckpointError for a tensor that cannot be saved sharded.
        """
        states = 0 if self._optimizer is None else sum(map(len, self._optimizer.state.values()))
        if states != self._states or not all(shard.is_current() for shard in self._shards):
            boxes: dict[Any, TensorBox] = {}
            found = [_shard(f"model.{name}", t, boxes) for name, t in _named_tensors(self._model)]
            for name, parameter, tensor in self._moments():
                _check_replicated(tensor, name, parameter)
                found.append(_shard(name, tensor, boxes))
            self._shards = sorted(found, key=lambda shard: shard.spec)
            self._states = states
        return self._shards

    def weights_digest(self) -> bytes:
        """Return what is the same for processes with weights of the same names and shapes."""
        weights = [s.spec for s in self.shards() if s.spec.name.startswith("model.")]
        return blake2b(repr(weights).encode(), digest_size=8).digest()

    def mesh(self) -> tuple[tuple[str, int], ...]:
        """Return names and sizes of the mesh of the first sharded tensor; empty without one."""
        mesh = largest_mesh(shard.holder for shard in self.shards())
        return () if mesh is None else mesh_sizes(mesh)

    def objects(self) -> dict[str, Any]:
        """Return the rest: the optimizer's settings, and what else than tensors is in its state.

        Raise CheckpointError for tensors of this process alone.
        """
        if self._optimizer is None:
            return {"groups": [], "numbers": {}}
        groups: list[dict[str, Any]] = []
        numbers: dict[str, dict[str, Any]] = {}
        for group in self._optimizer.param_groups:
            names = [self._name(parameter) for parameter in group["params"]]
            groups.append({**group, "params": names})
            for name, parameter in zip(names, group["params"], strict=True):
                own = self._optimizer.state.get(parameter, {})
                found = {k: v for k, v in own.items() if not isinstance(v, Tensor)}
                if found:
                    _check_replicated(found, f"optimizer.{name}", parameter)
                    numbers[name] = found
        rest = {k: v for k, v in self._optimizer.state.items() if not isinstance(k, Tensor)}
        devices = unusual_devices(self._optimizer, self._names)
        return {"groups": groups, "numbers": numbers, "rest": rest, "devices": devices}

    def prepare(
        self,
        saved: Mapping[str, TensorSpec],
        objects: Mapping[str, Any],
        *,
        with_optimizer: bool = True,
    ) -> None:
        """Make the optimizer's state as it was saved, its tensors yet to be filled.

        Raise CheckpointError, with nothing changed, if what was saved is of another model.
        """
        optimizer = self._optimizer if with_optimizer else None
        groups = objects.get("groups")
        if optimizer is not None and groups is not None:
            self._check_groups(groups)
        self.check_model(saved)
        if optimizer is None:
            return
        # What was imported has no settings: the optimizer's own remain.
        groups = [{} for _ in optimizer.param_groups] if groups is None else groups
        numbers, devices = objects.get("numbers", {}), objects.get("devices", {})
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.update({k: v for k, v in before.items() if k not in OWN_SETTINGS})
            for parameter in group["params"]:
                name = self._name(parameter)
                self._prepare_moments(group, parameter, saved, devices)
                others = place(numbers.get(name, {}), name, parameter, group, devices)
                optimizer.state[parameter].update(others)
        optimizer.state.update(objects.get("rest", {}))

    def _check_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        assert self._optimizer is not None
        own = [[self._name(p) for p in group["params"]] for group in self._optimizer.param_groups]
        if own != [group["params"] for group in groups]:
            raise other_model("its optimizer has other groups of parameters")

    def check_model(self, saved: Mapping[str, TensorSpec]) -> None:
        """Raise CheckpointError if the weights that were saved are of another model."""
        own = {shard.spec.name: shard.spec for shard in self.shards()}
        model = {name: spec for name, spec in own.items() if name.startswith("model.")}
        before = {name: spec for name, spec in saved.items() if name.startswith("model.")}
        for name in sorted(model.keys() ^ before.keys()):
            where = "the model" if name in model else "the checkpoint"
            raise other_model(f"{name.removeprefix('model.')} is only in {where}")
        for name, spec in sorted(model.items()):
            if spec != before[name]:
                was = f"{before[name].dtype} {list(before[name].shape)}"
                now = f"{spec.dtype} {list(spec.shape)}"
                raise other_model(f"{name.removeprefix('model.')} was {was}, and is {now}")

    def _prepare_moments(
        self,
        group: Mapping[str, Any],
        parameter: Tensor,
        saved: Mapping[str, TensorSpec],
        devices: Devices,
    ) -> None:
        assert self._optimizer is not None
        name = self._name(parameter)
        prefix = f"optimizer.{name}."
        own = self._optimizer.state[parameter]
        specs = {n.removeprefix(prefix): s for n, s in saved.items() if n.startswith(prefix)}
        for key in [k for k, v in own.items() if isinstance(v, Tensor) and k not in specs]:
            del own[key]
            self._states = -1
        for key, spec in specs.items():
            dtype = getattr(torch, spec.dtype)
            found = own.get(key)
            if isinstance(found, Tensor) and (tuple(found.shape), found.dtype) == (
                spec.shape,
                dtype,
            ):
                continue
            self._states = -1
            path = f"{name}/{key}"
            is_on_cpu = devices.get(path) == ON_CPU
            device = torch.device("cpu") if is_on_cpu else default_device(path, parameter, group)
            if spec.shape == tuple(parameter.shape) and spec.shape:
                own[key] = torch.zeros_like(parameter.detach(), dtype=dtype, device=device)
            else:
                own[key] = torch.zeros(spec.shape, dtype=dtype, device=device)

    def _moments(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        if self._optimizer is None:
            return
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in self._optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        yield f"optimizer.{self._name(parameter)}.{key}", parameter, value

    def _name(self, parameter: Tensor) -> str:
        try:
            return self._names[id(parameter)]
        except KeyError:
            raise CheckpointError(
                "the optimizer has a parameter that the model has not",
                hint="make the optimizer after the model is sharded, from model.parameters()",
                code="foreign_parameter",
            ) from None


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tied weights once, by their first name."""
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield plain_name(name), value


def _box(tensor: Tensor, boxes: dict[Any, TensorBox]) -> TensorBox:
    """Return the part of a tensor that this process holds."""
    if not is_sharded(tensor):
        return whole_box(tuple(tensor.shape))
    # PyTorch takes 1 ms for it on a mesh of two dimensions, and most tensors are alike.
    where = tensor.shape, tensor.device_mesh, tensor.placements
    if where not in boxes:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        sizes, starts = compute_local_shape_and_global_offset(*where)
        boxes[where] = TensorBox(tuple(map(int, starts)), tuple(map(int, sizes)))
    return boxes[where]


def boxes_digest(model: nn.Module) -> str:
    """Return what is the same for processes that hold the same parts of a model's parameters."""
    boxes: dict[Any, TensorBox] = {}
    held = [_box(parameter, boxes) for parameter in model.parameters()]
    return blake2b(repr(held).encode(), digest_size=8).hexdigest()


def _check_replicated(state: Any, name: str, parameter: Tensor) -> None:
    """Raise CheckpointError for tensors beside a sharded parameter that only this process has."""
    for path, tensor in tensors_in(state, name) if is_sharded(parameter) else ():
        if not is_sharded(tensor) and tensor.numel() > 1:
            raise CheckpointError(
                f"{path.replace('/', '.')} is not sharded as its parameter is, so it cannot be "
                "saved: each process holds its own",
                hint="use an optimizer that keeps its state in DTensors",
                code="unsupported_tensor",
            )


def _shard(name: str, tensor: Tensor, boxes: dict[Any, TensorBox]) -> Shard:
    """``boxes`` are those that were found already, by shape, mesh and placements."""
    local, shape = local_tensor(tensor).detach(), tuple(tensor.shape)
    dtype = DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype))
    if is_sharded(tensor) and any(p.is_partial() for p in tensor.placements):
        raise CheckpointError(
            f"{name} holds sums that are not reduced yet, so it cannot be saved",
            hint="save between steps",
        )
    box = _box(tensor, boxes)
    is_plain = type(local) is Tensor and local.layout is torch.strided
    if not is_plain or dtype not in ITEM_BYTES or box.sizes != tuple(local.shape):
        raise CheckpointError(
            f"{name} is a {type(local).__name__} of {dtype}, which cannot be saved sharded",
            hint="save it with costopt.train.Checkpointer",
            code="unsupported_tensor",
        )
    volatile = name.startswith("model.") and not isinstance(tensor, nn.Parameter)
    return Shard(TensorSpec(name, dtype, shape), box, tensor, local, local.data_ptr(), volatile)


class ShardPlan:
    """What this rank writes of a state, decided once for the boxes that all ranks hold."""

    def __init__(self, held: Sequence[HeldBox], everyone: Sequence[Column], rank: int):
        """``everyone`` are the ``box_keys`` of all ranks."""
        self.held = list(held)
        mine = assign_writers(everyone)[rank]
        tensors = tuple(dict.fromkeys(box.tensor for box in held))
        numbers = {tensor: number for number, tensor in enumerate(tensors)}
        self.offsets: list[int | None] = [None] * len(held)
        placed: list[PlacedBox] = []
        end = 0
        written = [number for number, is_mine in enumerate(mine) if is_mine]
        # Small boxes lie together: they are mostly replicated, and each rank reads their chunks.
        for number in sorted(
            written, key=lambda number: held[number].size_bytes >= MIN_LARGE_BYTES
        ):
            box = held[number]
            self.offsets[number] = end
            placed.append(PlacedBox(numbers[box.tensor], box.box, end))
            end += -(-box.size_bytes // ALIGNMENT) * ALIGNMENT
        self.tensor_bytes = end
        self.layout = ShardLayout(tensors, tuple(placed)).encode()
        self._copied: Sequence[Shard] = ()
        self._copies: tuple[tuple[StorageExtent, ...], tuple[Tensor, ...]] = ((), ())

    def copies(
        self, shards: Sequence[Shard]
    ) -> tuple[tuple[StorageExtent, ...], tuple[Tensor, ...]]:
        """Return the memory to copy, and the tensors that must not change meanwhile.

        Kept for as long as the shards are the same: it takes 10 ms for 2,200 tensors.
        """
        if self._copied is shards:
            return self._copies
        extents, checked = [], []
        self._copied = shards
        for shard, offset in zip(shards, self.offsets, strict=True):
            if offset is None:
                continue
            local = shard.local
            if not local.is_contiguous():
                # Its elements are copied, not its storage, which may be padded or strided.
                local, self._copied = local.contiguous(), ()
            item = local.element_size()
            storage, begin = local.untyped_storage(), int(local.storage_offset()) * item
            size_bytes = local.numel() * item
            extents.append(StorageExtent(offset, size_bytes, storage, begin, shard.volatile))
            if not shard.volatile:
                checked.append(local)
        self._copies = tuple(extents), tuple(checked)
        return self._copies


@dataclass(frozen=True, slots=True)
class ShardCopyLayout:
    """This rank's tensors to copy, then the layout, then the objects."""

    extents: tuple[StorageExtent, ...]
    tensor_bytes: int
    versions: tuple[tuple[Tensor, int], ...]
    rest: bytes
    is_frozen: bool = True

    @classmethod
    def of(cls, plan: ShardPlan, shards: Sequence[Shard], objects: bytes) -> ShardCopyLayout:
        """Return the layout of what this rank writes by a plan."""
        extents, checked = plan.copies(shards)
        versions = tuple((local, local._version) for local in checked)
        return cls(extents, plan.tensor_bytes, versions, plan.layout + objects)

    def pack(self) -> bytes:
        """Return what follows the tensors."""
        return self.rest

    def changed(self, min_bytes: int) -> bool:  # noqa: ARG002
        """Whether a tensor was changed in place; not all such changes can be detected."""
        return any(tensor._version != version for tensor, version in self.versions)
