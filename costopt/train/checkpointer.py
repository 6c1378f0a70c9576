"""``Checkpointer``: saves and restores a state; durable, verified, the newest valid one first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.checkpoint.commit import SupersededError
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.identity import ANOTHER_JOB, detect_identity
from costopt.checkpoint.lineage import read_head
from costopt.checkpoint.manifest import CheckpointName, Manifest, Part
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.snapshot import Replica, Tier, describe_location
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.writer import process_start_time
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint
from costopt.train.replica_restore import NearestReplica, ReplicaRestore
from costopt.train.save_queue import SaveOutcome, SaveQueue, SaveState
from costopt.train.state_layout import rebuild_state

OBJECTS = "objects.pt"
MAX_ATTEMPTS = sys.maxsize


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """A fully verified checkpoint from ``tier``, on ``node`` if another node has it.

    A snapshot that is not yet a checkpoint in the store is ``durable`` only up to ``durable_step``,
    None if the store holds no checkpoint; it has no name there.
    """

    name: str
    manifest: Manifest
    state: dict[str, Any]
    tier: Tier = Tier.STORE
    node: str = ""
    durable: bool = True
    durable_step: int | None = None

    @property
    def describe_source(self) -> str:
        """Return where it was restored from, for people."""
        return describe_location(self.tier, self.node)


class Checkpointer:
    """Checkpoints under one URI: a path, file://, s3:// or gs://. Usable alone, by one writer.

    ``save`` blocks until the state is durable. ``begin`` only copies it into shared memory; a
    separate process, which survives a crash of this one, writes it, and ``poll`` or ``wait`` return
    the outcome.

    ``keep`` is the retention policy; a number retains that many of the newest. ``labels`` of a save
    are stored in its manifest; a policy may rank checkpoints by a numeric one. ``generation``
    numbers the incarnation of the job: one of a later generation, or a later one of the same that
    has claimed the repository, supersedes this one, whose saves then fail. Restoring adopts a later
    generation that was active before this process began; 0 adopts any. ``refused`` names what the
    last restore rejected and why.

    ``near`` is the address of this node's near tiers (COSTOPT_SNAPSHOTS, from the agent): each
    snapshot goes there first, and a restore takes the newest state from the nearest tier.
    """

    def __init__(
        self,
        uri: str | Path,
        *,
        keep: int | RetentionPolicy = 3,
        generation: int = 0,
        near: str | None = None,
    ) -> None:
        rule = RetentionPolicy.of(keep)
        self.uri = str(uri) if "://" in str(uri) else str(Path(uri).absolute())
        self.refused: tuple[RejectedCheckpoint, ...] = ()
        self._place = CheckpointRepository.open(self.uri, detect_identity())
        self._queue = SaveQueue(self._place, rule, generation, near)
        self._near = None if near is None else ReplicaRestore(ReplicaClient(near), self._place)

    @property
    def generation(self) -> int:
        """Return the generation under which this one saves."""
        return self._queue.generation

    def set_parent(self, generation: int) -> None:
        """Save from now on as part of this generation, continuing a state that the gang already
        had.

        Nothing is restored: the checkpoints that the gang has saved remain its lineage. An older
        generation than this one's is ignored.
        """
        self._queue.resume(None, max(self.generation, generation))

    @property
    def writer_pid(self) -> int | None:
        """Return the writing process' id; None before the first save."""
        return self._queue.writer_pid

    def claim(self, *, wait: bool = True) -> None:
        """Supersede any process that saves here, before the first save does so.

        Raise CheckpointError if a later generation has claimed the repository or the store refuses;
        without ``wait`` the first save raises it.
        """
        self._queue.claim(wait=wait)

    def begin(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,
        labels: Mapping[str, str] | None = None,
        overlap: bool = False,
    ) -> bool:
        """Take a snapshot that is written later; return False, and do nothing, while one is in
        progress.

        On return the snapshot outlives this process. With ``overlap`` it is still being copied by a
        thread: until ``copied`` has returned the tensors may be read but not changed, and the
        snapshot is lost with the process. Steps of a ``torch.optim.Optimizer`` wait for the copy.
        Raise CheckpointError: no memory, or objects that could not be loaded again.
        """
        if self._queue.is_busy():
            return False
        self._queue.add(_state(step, state, world_size, labels), overlap=overlap)
        return True

    def copied(self) -> None:
        """Wait until the tensors may be changed again.

        Steps of a ``torch.optim.Optimizer`` do; call it before anything else that changes them.
        """
        self._queue.wait_for_copy()

    def poll(self) -> tuple[SaveOutcome, ...]:
        """Return the saves that ended since the last call, in order, without waiting."""
        return self._queue.outcomes(wait=False)

    def wait(self) -> tuple[SaveOutcome, ...]:
        """Return as ``poll`` does, once no save is in progress."""
        return self._queue.outcomes(wait=True)

    def save(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint:
        """Make the state durable; block until it is. Earlier checkpoints stay as they are.

        A save in progress is finished first; ``poll`` returns its outcome. Raise CheckpointError:
        no space, no permission, superseded.
        """
        ticket = self._queue.add(_state(step, state, world_size, labels))
        return self._queue.outcome_of(ticket)

    def save_for_notice(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint | Replica:
        """Save as ``save`` does when time is short: upload only what changed since the newest
        checkpoint, so that this one can be loaded only together with that one.

        Returns as soon as a peer holds the snapshot: the rest of the upload continues without this
        process, for as long as the node lives.
        """
        ticket = self._queue.add(_state(step, state, world_size, labels), as_delta=True)
        return self._queue.outcome_or_peer(ticket)

    def pop_replicas(self) -> tuple[Replica, ...]:
        """Return the results of the near tiers since the last call, in order."""
        return self._queue.pop_replicas()

    def restore(self) -> RestoredCheckpoint | None:
        """Return the newest valid checkpoint from the nearest tier, or None if there is none.

        Nothing older than the newest in the store is taken from a near tier. Tensors are on the
        CPU. Raise CheckpointError if a complete checkpoint holds objects that cannot be loaded
        safely.
        """
        found = None if self._near is None else self._near.state(_read_state)
        restored = self._restore_from_store() if found is None else self._near_restored(found)
        if self._near is not None:
            self.refused = (*self._near.refused, *self.refused)
        if restored is not None:
            self._resume_from(restored)
        return restored

    def _near_restored(self, found: NearestReplica) -> RestoredCheckpoint:
        manifest = found.manifest
        name = CheckpointName.parse(manifest.name)
        least = name or CheckpointName(manifest.generation, manifest.step, MAX_ATTEMPTS)
        self.refused = tuple(self._cut_short(set(), least))
        return RestoredCheckpoint(
            name=manifest.name or str(CheckpointName(manifest.generation, manifest.step, 0)),
            manifest=manifest,
            state=found.state,
            tier=found.offer.tier,
            node=found.offer.node,
            durable=name is not None,
            durable_step=manifest.step if name is not None else found.durable_step,
        )

    def _restore_from_store(self) -> RestoredCheckpoint | None:
        names, complaint = self._place.candidates()
        refused = [] if complaint is None else [self._refusal("HEAD", complaint)]
        restored = None
        for name in names:
            try:
                restored = self._read(name)
                break
            except ValueError as error:
                refused.append(self._refusal(str(name), str(error)))
        least = None if restored is None else CheckpointName.parse(restored.name)
        self.refused = (*self._cut_short(set(names), least), *refused)
        return restored

    def load(self, name: str) -> RestoredCheckpoint:
        """Return the checkpoint of this name, also where it is another job's: this one cannot save
        there. Raise CheckpointError if it is not valid.
        """
        parsed = CheckpointName.parse(name)
        try:
            if parsed is None:
                raise ValueError("not the name of a checkpoint")
            restored = self._read(parsed)
        except ValueError as error:
            raise CheckpointError(
                f"checkpoint {name} in {self.uri}: {error}",
                hint="give every node the same checkpoint store",
            ) from error
        try:
            self._resume_from(restored)
        except CheckpointError as error:
            if error.code != ANOTHER_JOB:
                raise
        return restored

    def describe(self, restored: RestoredCheckpoint) -> SavedCheckpoint:
        """Return the report of a restored checkpoint."""
        return describe_checkpoint(self._place, restored.name, restored.manifest)

    def close(self) -> None:
        """Wait for saves in progress, then end the writing process and free the memory."""
        self._queue.close()

    def _resume_from(self, restored: RestoredCheckpoint) -> None:
        head = read_head(self._place)
        latest = restored.manifest.generation if head is None else head.generation
        if head is not None and 0 < self.generation < latest and head.at > process_start_time():
            raise SupersededError(
                f"generation {self.generation} would start from scratch in {self.uri}: generation "
                f"{latest} has taken over since this process began"
            )
        generation = max(self.generation, restored.manifest.generation, latest)
        parent = restored.name if restored.durable else restored.manifest.parent
        self._queue.resume(parent, generation)

    def _cut_short(
        self, tried: set[CheckpointName], least: CheckpointName | None
    ) -> list[RejectedCheckpoint]:
        """Return incomplete saves later than ``least``, the restored one: they never got a
        manifest.
        """
        found = []
        for name in self._place.names():
            if name in tried or (least is not None and name <= least):
                continue
            try:
                self._place.manifest(name)
            except ValueError as error:
                found.append(self._refusal(str(name), str(error)))
        return found

    def _refusal(self, name: str, message: str) -> RejectedCheckpoint:
        return RejectedCheckpoint(name, self._place.path(name), message)

    def _read(self, name: CheckpointName) -> RestoredCheckpoint:
        manifest = self._place.manifest(name)
        try:
            state = _read_state(manifest, lambda part: self._place.read(name, part, manifest.delta))
        except CheckpointError as error:
            raise CheckpointError(
                f"{self._place.path(name)}: {error.message}", hint=error.hint, code=error.code
            ) from error
        return RestoredCheckpoint(str(name), manifest, state, durable_step=manifest.step)


def _read_state(manifest: Manifest, read: Callable[[Part], bytes]) -> dict[str, Any]:
    """Raise ValueError if it is not valid, CheckpointError if it cannot be loaded safely."""
    if manifest.shards is not None:
        raise CheckpointError(
            f"it was saved sharded by {manifest.world_size} processes",
            hint="restore it with costopt.train.ShardedCheckpointer",
            code="sharded",
        )
    parts = {part.name: part for part in manifest.parts}
    if OBJECTS not in parts:
        raise ValueError(f"the manifest does not list {OBJECTS}")
    objects = read(parts.pop(OBJECTS))
    tensors = list(parts.values())
    sizes = [part.size_bytes for part in tensors]
    return rebuild_state(objects, sizes, lambda number: read(tensors[number]))


def describe_checkpoint(
    place: CheckpointRepository, name: str, manifest: Manifest
) -> SavedCheckpoint:
    """Return the report of a checkpoint that exists."""
    return SavedCheckpoint(
        name=name,
        units=float(manifest.step),
        uri=place.path(name),
        at=manifest.at,
        size_bytes=manifest.own_bytes,
        save_s=manifest.save_s,
    )


def _state(
    step: int, values: dict[str, Any], world_size: int, labels: Mapping[str, str] | None
) -> SaveState:
    return SaveState(step, values, world_size, tuple((labels or {}).items()))
