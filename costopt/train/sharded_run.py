"""A run of a sharded model: its state, sent from copy to copy, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from costopt.checkpoint.manifest import CheckpointName, TensorSpec
from costopt.checkpoint.replicas.snapshot import Replica
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint
from costopt.train.checkpointer import RestoredCheckpoint
from costopt.train.group import BUCKET_BYTES
from costopt.train.recipe_check import RecipeCheck
from costopt.train.replica_groups import Replicas
from costopt.train.run_state import (
    ExactnessGuarantee,
    RunState,
    Stateful,
    TrainingState,
    encode_conditions,
)
from costopt.train.safe_objects import check_objects
from costopt.train.save_queue import SaveOutcome
from costopt.train.sharded_checkpointer import ShardedCheckpointer
from costopt.train.sharded_state import Shard, ShardedState


class SchedulerState(TrainingState):
    """The scheduler alone: tensors of model and optimizer are saved and sent as shards."""

    def __init__(self, scheduler: Stateful | None) -> None:
        self._parts = {} if scheduler is None else {"scheduler": scheduler}

    def snapshot(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        return self.state_dict()


class ShardedRunState(RunState):
    """As for any run; each process sends and receives its own shards."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Stateful | None,
        *,
        group: Replicas,
        guarantee: ExactnessGuarantee,
        conditions: dict[str, str],
        recipe: RecipeCheck,
        clip_norm: float | None = None,
    ) -> None:
        super().__init__(
            SchedulerState(scheduler),
            group=group,
            guarantee=guarantee,
            conditions=conditions,
            recipe=recipe,
            clip_norm=clip_norm,
        )
        self._replicas = group
        self._shards = ShardedState(model, optimizer)

    def check_objects(self) -> None:
        """Raise CheckpointError as for any run, also for what the optimizer has beside tensors."""
        super().check_objects()
        check_objects(self._shards.objects())

    def load(self, state: Mapping[str, Any], source: str) -> None:
        """Resume from a checkpoint, from which the first copy has been filled."""
        super().load(state, source)
        self._send_shards(0)

    def align(self, source: int) -> None:
        """Adopt the state of a copy. Collective."""
        with self._replicas.agreeing():
            super().align(source)
            self._send_shards(source)

    def check_rank_conditions(self) -> None:
        """Compare the conditions of all processes. Collective."""
        super().check_rank_conditions()
        self.compare(self._replicas.unit.gather(encode_conditions(self._conditions)))

    def _send_shards(self, source: int) -> None:
        group = self._replicas
        if group.size == 1:
            return
        sends = group.rank == source
        specs = [tuple(shard.spec) for shard in self._shards.shards()] if sends else None
        described = group.broadcast((specs, self._shards.objects() if sends else None), source)
        if not sends:
            # From here on this process holds the state of no step, until all has arrived.
            group.publish_state(None)
            found, objects = described
            tensors = (TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in found)
            self._shards.prepare({tensor.name: tensor for tensor in tensors}, objects)
        for bucket in _buckets(self._shards.shards()):
            flat = torch.cat([_bytes(shard.local).to(group.device) for shard in bucket])
            group.send(flat, source)
            if sends:
                continue
            parts = torch.split(flat, [shard.held.size_bytes for shard in bucket])
            for shard, part in zip(bucket, parts, strict=True):
                values = part.clone().view(shard.local.dtype).view(shard.local.shape)
                with torch.no_grad():
                    shard.local.copy_(values)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _buckets(shards: list[Shard]) -> Iterator[list[Shard]]:
    bucket: list[Shard] = []
    for shard in shards:
        if not shard.held.size_bytes:
            continue
        bucket.append(shard)
        if sum(each.held.size_bytes for each in bucket) >= BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


class AttachedShards:
    """The checkpoints of ``attach`` for a sharded model; ``Checkpointer`` has the same methods.

    All processes of the first copy call them; the tensors are those of model and optimizer, and a
    ``state`` is the rest. ``refused`` is as for ``ShardedCheckpointer``.
    """

    def __init__(self, saver: ShardedCheckpointer, rest: dict[str, Any]) -> None:
        """``rest`` is what ``saver`` saves as its extra; each save replaces its content."""
        self._saver, self._rest = saver, rest

    @property
    def refused(self) -> tuple[RejectedCheckpoint, ...]:
        """Return what the last restore rejected, and why."""
        return self._saver.refused

    def begin(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,  # noqa: ARG002
        labels: Mapping[str, str] | None = None,
        overlap: bool = False,  # noqa: ARG002
    ) -> bool:
        """Copy the shards while training continues; they are written later."""
        self._take(state)
        self._saver.begin(step, labels=labels)
        return True

    def save(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,  # noqa: ARG002
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint:
        """Save, and return once the checkpoint is committed."""
        self._take(state)
        return self._saver.save(step, labels=labels)

    def save_for_notice(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,  # noqa: ARG002
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint | Replica:
        """Save when time is short: return once peers hold all parts, or the store."""
        self._take(state)
        return self._saver.save_for_notice(step, labels=labels)

    def late_reason(self, find_reason: Callable[[int], str | None]) -> str | None:
        """Return any process' reason why the bytes of the state are too many."""
        return self._saver.late_reason(find_reason)

    def restore(self) -> RestoredCheckpoint | None:
        """Fill model and optimizer from the newest valid checkpoint; return the rest."""
        found = self._saver.restore()
        if found is None:
            return None
        parent = CheckpointName.parse(found.manifest.parent or "")
        durable_step = None if parent is None else parent.step
        return RestoredCheckpoint(
            found.name or str(CheckpointName(found.manifest.generation, found.step, 0)),
            found.manifest,
            found.extra,
            tier=found.tier,
            durable=bool(found.name),
            durable_step=found.step if found.name else durable_step,
        )

    def copied(self) -> None:
        """Wait until the tensors may be changed."""
        self._saver.copied()

    def poll(self) -> tuple[SaveOutcome, ...]:
        """Return the saves that ended since the last call."""
        return self._saver.poll()

    def wait(self) -> tuple[SaveOutcome, ...]:
        """Return as ``poll`` does, once no save is in progress."""
        return self._saver.wait()

    def claim(self, *, wait: bool = True) -> None:
        """Do nothing: the first save claims the repository."""

    def set_parent(self, generation: int) -> None:
        """Save from now on in this generation."""
        self._saver.set_parent(generation)

    def pop_replicas(self) -> tuple[Replica, ...]:
        """Return the results of the near tiers since the last call."""
        return self._saver.pop_replicas()

    def describe(self, restored: RestoredCheckpoint) -> SavedCheckpoint:
        """Return the report of a restored checkpoint."""
        return self._saver.describe(restored.name, restored.manifest)

    def _take(self, state: dict[str, Any]) -> None:
        self._rest.clear()
        self._rest.update(state)
