"""``ShardedCheckpointer``: saves and restores a model that is sharded over many processes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from costopt.checkpoint.commit import SupersededError
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.identity import detect_identity
from costopt.checkpoint.lineage import compare_and_swap_head, current_lineage, read_newest
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.replicas.snapshot import Replica, Tier
from costopt.checkpoint.repository import CheckpointRepository, Head
from costopt.checkpoint.sharded.commit import DEFAULT_TIMEOUT_S, ShardGroup
from costopt.checkpoint.sharded.index import ITEM_BYTES, ShardIndex
from costopt.checkpoint.sharded.snapshot import NearSave
from costopt.checkpoint.sharded.source import ShardSource, TensorPiece
from costopt.checkpoint.sharded.writers import box_keys
from costopt.checkpoint.writer import process_start_time
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint
from costopt.train.checkpointer import describe_checkpoint
from costopt.train.recipe import run_recipe
from costopt.train.recipe_check import RecipeChange, RecipeCheck
from costopt.train.run_state import runtime_conditions
from costopt.train.safe_objects import check_objects, load_objects, pack_objects
from costopt.train.save_queue import SaveOutcome, SaveQueue, SaveState
from costopt.train.sharded_ranks import CopyRanks
from costopt.train.sharded_replicas import Newest, ShardReplicas
from costopt.train.sharded_restore import MAX_OTHERS_SHARE, others_share, pour
from costopt.train.sharded_state import Shard, ShardCopyLayout, ShardedState, ShardPlan

Extra = Callable[[], dict[str, Any]]
_Stored = tuple[Manifest, list[bytes]]
"""A manifest, and the documents of its ranks' indexes."""


@dataclass(frozen=True, slots=True)
class RestoredShards:
    """A checkpoint that model and optimizer were filled from.

    ``extra`` is what this rank's ``extra()`` returned when it was saved, or that of rank 0 where
    the number of processes was another. ``bytes_read`` are those of tensors that this process read
    from the store, ``near_bytes`` those from near tiers; ``tier`` is the one they came from, the
    farthest of several. A snapshot that is not yet in the store has no name. ``changed`` says which
    settings are others than those that were saved, or that this is unknown.
    """

    name: str
    manifest: Manifest
    extra: dict[str, Any]
    bytes_read: int
    near_bytes: int = 0
    tier: Tier = Tier.STORE
    changed: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Return the step that was saved."""
        return self.manifest.step


class ShardedCheckpointer:
    """Checkpoints of FSDP2, HSDP and tensor-parallel models: every rank writes its own shards.

    Made on each rank after the model is sharded. ``restore``, ``begin`` and ``save`` are called by
    all ranks in the same order, with the same steps; torch.distributed must be initialized before.
    What was saved on one mesh is restored on any other. ``extra`` returns what else a rank saves:
    its data position, its generators, a scheduler's state.

    ``keep`` is as for ``Checkpointer``, and so is ``generation``. A save of which a rank's files do
    not arrive within ``timeout_s`` fails on all ranks. ``refused`` names what the last restore
    rejected and why. ``near`` is as for ``Checkpointer``: a restore takes the newest step of which
    the near tiers, or they and the store, hold every rank's part, each range from the nearest.

    ``changed`` is as for ``attach``, for the settings of model and optimizer: make this when the
    optimizer is new.
    """

    def __init__(
        self,
        uri: str | Path,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        keep: int | RetentionPolicy = 3,
        generation: int = 0,
        extra: Extra | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        ranks: CopyRanks | None = None,
        near: str | None = None,
        changed: RecipeChange = "refuse",
        recipe: RecipeCheck | None = None,
    ) -> None:
        """``ranks`` are those that save together, by default all. ``recipe`` replaces the one that
        follows from model and optimizer.
        """
        self.uri = str(uri) if "://" in str(uri) else str(Path(uri).absolute())
        self.refused: tuple[RejectedCheckpoint, ...] = ()
        self._keep = RetentionPolicy.of(keep)
        self._generation = generation
        self._extra = extra
        self._timeout_s = timeout_s
        self._place = CheckpointRepository.open(self.uri, detect_identity())
        self._near_address = near
        self._state = ShardedState(model, optimizer)
        if recipe is None:
            own, conditions = run_recipe(model, optimizer), runtime_conditions()
            recipe = RecipeCheck(own, changed, optimizer, None, conditions)
        self._recipe = recipe
        ranks = CopyRanks.of() if ranks is None else ranks
        self._ranks, self._node = ranks.everyone, ranks.node
        self._plan: ShardPlan | None = None
        self._planned: list[Shard] = []
        self._queue: SaveQueue | None = None
        self._parent: str | None = None
        self._is_checked = self._is_outdated = False
        self._ended: tuple[SaveOutcome, ...] = ()

    @property
    def writer_pid(self) -> int | None:
        """Return the id of the process that writes this node's shards; None until it is known."""
        return None if self._queue is None else self._queue.writer_pid

    def begin(self, step: int, *, labels: Mapping[str, str] | None = None) -> None:
        """Copy this rank's shards while training continues; write and commit them afterwards.

        The next step of a ``torch.optim.Optimizer`` waits for the copy; buffers are copied at once.
        Waits where the last two saves are still being written. Raise CheckpointError: superseded,
        no memory, or ``extra`` holds objects that could not be loaded again.
        """
        self._add(step, labels, overlap=True)

    def copied(self) -> None:
        """Wait until the tensors may be changed by other means than an optimizer's step."""
        if self._queue is not None:
            self._queue.wait_for_copy()

    def poll(self) -> tuple[SaveOutcome, ...]:
        """Return the saves that ended since the last call, in order, without waiting."""
        return self._outcomes(wait=False)

    def wait(self) -> tuple[SaveOutcome, ...]:
        """Return as ``poll`` does, once no save of this rank is in progress."""
        return self._outcomes(wait=True)

    def _outcomes(self, *, wait: bool) -> tuple[SaveOutcome, ...]:
        before, self._ended = self._ended, ()
        return before if self._queue is None else (*before, *self._queue.outcomes(wait=wait))

    def save(self, step: int, *, labels: Mapping[str, str] | None = None) -> SavedCheckpoint:
        """Save, and return once the checkpoint of all ranks is committed.

        Raise CheckpointError: superseded, or any rank failed.
        """
        ticket = self._add(step, labels, overlap=False)
        assert self._queue is not None
        return self._queue.outcome_of(ticket)

    def save_for_notice(
        self, step: int, *, labels: Mapping[str, str] | None = None
    ) -> SavedCheckpoint | Replica:
        """Save as ``save`` does when time is short: upload only what changed since the newest whole
        checkpoint of these processes, so that this one can be loaded only together with that one.

        Returns on all ranks once each has a peer that holds its part, or the store has the whole;
        uploads continue without this process, for as long as the nodes live.
        """

        def secure() -> SavedCheckpoint | Replica:
            ticket = self._add(step, labels, overlap=False, as_delta=True)
            assert self._queue is not None
            return self._queue.outcome_or_peer(ticket)

        return self._ranks.together(secure)

    def restore(self) -> RestoredShards | None:
        """Fill model and optimizer from the newest valid checkpoint; None if there is none.

        Collective. Saves in progress are finished first. Raise CheckpointError on all ranks if it
        is of another model, or if no checkpoint is valid any more after one was filled in part.
        """
        self.close()
        names, complaint, first, newest = self._ranks.on_first(self._find)
        near = ShardReplicas(self._near_address, self._place, self._ranks, self._node, newest)
        refused = [] if complaint is None else [self._refusal("HEAD", complaint)]
        is_partial = False
        restored = None
        candidates: list[NearSave | CheckpointName] = [*near.saves(), *names]
        for candidate in candidates:
            try:
                if isinstance(candidate, NearSave):
                    source = near.open(candidate)
                else:
                    found = first if candidate == names[0] else None
                    source = self._open(candidate, near, found)
                is_partial = True
                restored = self._fill(source)
                break
            except ValueError as error:
                refused.append(self._refusal(str(candidate), str(error)))
        self.refused = tuple(refused)
        if restored is None and is_partial:
            raise CheckpointError(
                f"no checkpoint in {self.uri} is valid: {refused[-1].message}",
                hint="roll back to one that `costopt checkpoints verify` finds whole",
                code="damaged",
            )
        self._parent = None if restored is None else restored.name or restored.manifest.parent
        return restored

    def late_reason(self, find_reason: Callable[[int], str | None]) -> str | None:
        """Return a rank's reason why the bytes of the whole state are too many; None if no rank
        has one. Collective.
        """
        specs = [shard.spec for shard in self._state.shards()]
        size_bytes = sum(prod(spec.shape) * ITEM_BYTES[spec.dtype] for spec in specs)
        reasons = self._ranks.gather(find_reason(size_bytes))
        return next((reason for reason in reasons if reason is not None), None)

    def set_parent(self, generation: int) -> None:
        """Save from now on in this generation, unless an older one than before, and claim the
        repository first.
        """
        self._generation = max(self._generation, generation)
        self._parent, self._is_outdated = None, self._queue is not None

    def describe(self, name: str, manifest: Manifest) -> SavedCheckpoint:
        """Return the report of a restored checkpoint."""
        return describe_checkpoint(self._place, name, manifest)

    def pop_replicas(self) -> tuple[Replica, ...]:
        """Return the results of the near tiers since the last call, in order."""
        return () if self._queue is None else self._queue.pop_replicas()

    def close(self) -> None:
        """Wait for this rank's saves in progress. The node's last rank ends the writing process."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        self._is_outdated = False

    def _add(
        self, step: int, labels: Mapping[str, str] | None, *, overlap: bool, as_delta: bool = False
    ) -> int:
        if self._is_outdated:
            self._ended = self.wait()
            self.close()
        queue = self._queue = self._queue or self._form()
        shards = self._state.shards()
        if self._plan is None or self._planned is not shards:
            held = [shard.held for shard in shards]
            # Tensors may have moved on some ranks alone; the boxes change on all or on none.
            if self._plan is None or self._plan.held != held:
                everyone = self._ranks.gather((box_keys(held), self._state.weights_digest()))
                if len({digest for _, digest in everyone}) > 1:
                    raise CheckpointError(
                        "the processes hold weights of other names, as the stages of a pipeline",
                        hint="save models that all processes hold a part of: use no pipeline",
                        code="unsupported_mesh",
                    )
                keys = [each for each, _ in everyone]
                self._plan = ShardPlan(held, keys, self._ranks.rank)
            self._planned = shards
        layout = ShardCopyLayout.of(self._plan, shards, self._objects())
        state = SaveState(step, {}, self._ranks.size, tuple((labels or {}).items()))
        layout_bytes = len(self._plan.layout)
        return queue.add_shards(state, layout, layout_bytes, overlap=overlap, as_delta=as_delta)

    def _objects(self) -> bytes:
        extra = {} if self._extra is None else self._extra()
        settings = self._state.objects()
        if self._ranks.rank == 0:
            settings["recipe"] = self._recipe.stored
            settings["conditions"] = dict(self._recipe.conditions)
        else:
            settings = {}
        objects = {"extra": extra, **settings}
        if not self._is_checked:
            check_objects(objects)
            self._is_checked = True
        return pack_objects(objects)

    def _form(self) -> SaveQueue:
        """Claim the repository for these processes. Collective."""
        mesh = self._state.mesh()
        word, attempt, generation = self._ranks.on_first(
            lambda: claim_place(self._place, self._generation)
        )
        self._generation = generation
        group = ShardGroup(word, attempt, self._ranks.rank, self._ranks.size, mesh, self._timeout_s)
        near, node = self._near_address, self._node
        shared = f"{word} {node.members[0]} {near}" if node.size > 1 else None
        queue = SaveQueue(self._place, self._keep, generation, near, group, shared)
        queue.resume(self._parent, generation)
        return queue

    def _find(self) -> tuple[list[CheckpointName], str | None, _Stored | None, Newest | None]:
        """Return the candidates, what is wrong with HEAD, and the first candidate if it is valid;
        instead of that what near tiers are compared with, if this rank has some.
        """
        names, complaint = self._place.candidates()
        if self._near_address is not None:
            return names, complaint, None, read_newest(self._place)
        try:
            return names, complaint, self._read(names[0]) if names else None, None
        except (ValueError, CheckpointError):
            return names, complaint, None, None

    def _read(self, name: CheckpointName) -> _Stored:
        """Return the manifest and the indexes, verified. Raise ValueError if they are not valid."""
        manifest = self._place.manifest(name)
        if manifest.shards is None:
            raise CheckpointError(
                f"{self._place.path(name)} was not saved sharded",
                hint="restore it with costopt.train.Checkpointer",
                code="not_sharded",
            )
        parts = manifest.shards.indexes
        return manifest, [self._place.read(name, part, None) for part in parts]

    def _open(
        self, name: CheckpointName, near: ShardReplicas, found: _Stored | None
    ) -> ShardSource:
        """Return the checkpoint, as it was ``found`` or else read by one rank for all.

        Raise ValueError if it is not valid. Collective.
        """
        manifest, data = found or self._ranks.on_first(lambda: self._read(name))
        indexes = [ShardIndex.decode(each) for each in data]
        return ShardSource(self._place, name, manifest, indexes, near.of(manifest))

    def _fill(self, source: ShardSource) -> RestoredShards:
        """Raise ValueError if a byte is not valid. Collective."""
        world = source.manifest.world_size

        def prepare() -> tuple[tuple[dict[str, Any], list[TensorPiece]], float]:
            common = load_objects(source.objects(0))
            rank = self._ranks.rank if world == self._ranks.size else 0
            own = common if rank == 0 else load_objects(source.objects(rank))
            self._state.check_model(source.tensors)
            found = self._recipe.compare(common.get("recipe"), common.get("conditions", {}))
            self._recipe.settle(found, "the checkpoint")
            is_new = self._recipe.replaces_optimizer
            self._state.prepare(source.tensors, common, with_optimizer=not is_new)
            self._recipe.apply(source.manifest.step)
            pieces = source.pieces({s.spec.name: s.box for s in self._state.shards()})
            return (own, pieces), others_share(pieces, self._ranks.rank)

        (own, pieces), share = self._ranks.together_max(prepare)
        node = self._node.alone() if share <= MAX_OTHERS_SHARE else self._node
        self._ranks.together(lambda: pour(source, pieces, self._state.shards(), node))
        manifest = source.manifest
        return RestoredShards(
            manifest.name,
            manifest,
            own["extra"],
            source.bytes_read,
            source.near_bytes,
            source.tier,
            tuple(self._recipe.reasons),
        )

    def _refusal(self, name: str, message: str) -> RejectedCheckpoint:
        return RejectedCheckpoint(name, self._place.path(name), message)


def claim_place(place: CheckpointRepository, generation: int) -> tuple[str, int, int]:
    """Return a new fencing token, which HEAD then holds, with an attempt of its own.

    Raise SupersededError if a later generation has claimed the place since this process began.
    """
    word = uuid.uuid4().hex

    def change(found: Head | None) -> Head:
        latest = 0 if found is None else found.generation
        is_late = found is not None and found.at > process_start_time()
        if is_late and 0 < generation < latest:
            raise SupersededError(
                f"generation {generation} may not save in {place.uri}: generation "
                f"{latest} has taken over since this process began"
            )
        line = current_lineage(place, found)
        at, identity = time.time(), place.next_identity(found)
        return Head(max(generation, latest), word, line, at, identity)

    head = compare_and_swap_head(place, change)
    attempt = 1 + max((name.attempt for name in place.names()), default=-1)
    return word, attempt, head.generation
