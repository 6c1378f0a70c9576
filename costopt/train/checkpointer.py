"""Saves and restores a state dictionary: durable, verified, the newest valid one first."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.checkpoint.commit import SUPERSEDED_HINT, SupersededError
from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.lineage import read_head
from costopt.checkpoint.manifest import CheckpointName, Manifest, Part
from costopt.checkpoint.replicas.agent_socket import ReplicaClient
from costopt.checkpoint.replicas.snapshot import Replica, Tier, describe_location
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.writer import process_start_time
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint
from costopt.train.replica_restore import NearestReplica, ReplicaRestore
from costopt.train.save_queue import FailedSave, SaveOutcome, SaveQueue, SaveState
from costopt.train.state_layout import rebuild_state

OBJECTS = "objects.pt"
MAX_ATTEMPTS = sys.maxsize
SAFE_HINT = "allow them with torch.serialization.add_safe_globals before attaching"


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """A checkpoint that was read and verified whole, from ``tier``, on ``node`` if another has it.

    A snapshot that no checkpoint in the store holds yet is ``durable`` only up to ``durable_step``,
    None where the store holds nothing; it has no name there.
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
        """Where it came from, as people read it."""
        return describe_location(self.tier, self.node)


class Checkpointer:
    """Checkpoints under one URI: a path, file://, s3:// or gs://. Usable alone, by one writer.

    ``save`` blocks until the state is durable. ``begin`` only copies it into shared memory; a
    process of its own, which a crash of this one does not end, writes it, and ``poll`` or ``wait``
    tell how that went.

    ``keep`` says which checkpoints are kept, a number the newest so many. ``labels`` of a save
    stand in its manifest; a keep rule may go by one that is a number. ``generation`` numbers
    the incarnation of the job: one of a later generation, or a later one of the same that has
    claimed the place, supersedes this one, whose saves then fail. Restoring takes over a later
    generation that was at work before this process began; 0 takes over any. ``refused`` names what
    the last restore passed over and why.

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
        rule = RetentionPolicy(keep) if isinstance(keep, int) else keep
        self.uri = str(uri) if "://" in str(uri) else str(Path(uri).absolute())
        self.refused: tuple[RejectedCheckpoint, ...] = ()
        self._place = CheckpointRepository.open(self.uri)
        self._queue = SaveQueue(self._place, rule, generation, near)
        self._near = None if near is None else ReplicaRestore(ReplicaClient(near), self._place)

    @property
    def generation(self) -> int:
        """The number under which this one saves."""
        return self._queue.generation

    def set_parent(self, generation: int) -> None:
        """Save from now on as part of this generation, of a state that the gang had already.

        Nothing is restored: the checkpoints that the gang has saved stay those that it stands on.
        An older generation than this one's is ignored.
        """
        self._queue.resume(None, max(self.generation, generation))

    @property
    def writer_pid(self) -> int | None:
        """The process that writes; None until the first save."""
        return self._queue.writer_pid

    def claim(self, *, wait: bool = True) -> None:
        """Supersede whoever saves here, before the first save does.

        Raises CheckpointError where a later generation has the place or the store refuses; without
        ``wait`` the first save does.
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
        """Take a snapshot that is written later; False, and nothing done, while one is in flight.

        When it returns the snapshot outlives this process. With ``overlap`` it is still being
        copied by a thread: until ``copied`` has returned the tensors may be read but not changed,
        and the snapshot dies with the process. Steps of a ``torch.optim.Optimizer`` wait for the
        copy. Raises CheckpointError: no memory, or objects that could not be loaded again.
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
        """The saves that ended since the last call, in order; waits for nothing."""
        return self._queue.outcomes(wait=False)

    def wait(self) -> tuple[SaveOutcome, ...]:
        """As ``poll``, once no save is in flight any more."""
        return self._queue.outcomes(wait=True)

    def save(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint:
        """Make the state durable; blocks until it is. Earlier checkpoints stay as they are.

        A save in flight is finished first; ``poll`` tells of it. Raises CheckpointError: no space,
        no permission, superseded.
        """
        ticket = self._queue.add(_state(step, state, world_size, labels))
        outcome = self._queue.outcome_of(ticket)
        if isinstance(outcome, FailedSave):
            raise outcome.error
        return outcome

    def save_for_notice(
        self,
        step: int,
        state: dict[str, Any],
        *,
        world_size: int = 1,
        labels: Mapping[str, str] | None = None,
    ) -> SavedCheckpoint | Replica:
        """As ``save``, where time is short: what has not changed since the newest checkpoint is
        not sent again, so that this one cannot be loaded without that one.

        It is done as soon as a peer holds the snapshot: what is left of the upload goes on without
        this process, for as long as the node lives.
        """
        ticket = self._queue.add(_state(step, state, world_size, labels), as_delta=True)
        outcome = self._queue.outcome_or_peer(ticket)
        if isinstance(outcome, FailedSave):
            raise outcome.error
        return outcome

    def pop_replicas(self) -> tuple[Replica, ...]:
        """What became of snapshots in near tiers since the last call, in order."""
        return self._queue.pop_replicas()

    def restore(self) -> RestoredCheckpoint | None:
        """The newest valid checkpoint, or None where there is none; from the nearest tier.

        Nothing older than the newest in the store is taken from a near one. Tensors are on the
        CPU. Raises CheckpointError where a whole checkpoint holds objects that may not be loaded
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
        """One checkpoint by name. Raises CheckpointError where it is not valid."""
        parsed = CheckpointName.parse(name)
        try:
            if parsed is None:
                raise ValueError("no name of a checkpoint")
            restored = self._read(parsed)
        except ValueError as error:
            raise CheckpointError(
                f"checkpoint {name} in {self.uri}: {error}",
                hint="every node must see the same checkpoint store",
            ) from error
        self._resume_from(restored)
        return restored

    def describe(self, restored: RestoredCheckpoint) -> SavedCheckpoint:
        """A restored checkpoint as a report of it."""
        manifest = restored.manifest
        return SavedCheckpoint(
            name=restored.name,
            units=float(manifest.step),
            uri=self._place.path(restored.name),
            at=manifest.at,
            size_bytes=manifest.own_bytes,
            save_s=manifest.save_s,
        )

    def close(self) -> None:
        """Wait for what is in flight, then end the writing process and free the memory."""
        self._queue.close()

    def _resume_from(self, restored: RestoredCheckpoint) -> None:
        head = read_head(self._place)
        latest = restored.manifest.generation if head is None else head.generation
        if head is not None and 0 < self.generation < latest and head.at > process_start_time():
            raise SupersededError(
                f"generation {self.generation} goes on from nothing in {self.uri}: generation "
                f"{latest} has taken over since this process began",
                hint=SUPERSEDED_HINT,
                code="superseded",
            )
        generation = max(self.generation, restored.manifest.generation, latest)
        parent = restored.name if restored.durable else restored.manifest.parent
        self._queue.resume(parent, generation)

    def _cut_short(
        self, tried: set[CheckpointName], least: CheckpointName | None
    ) -> list[RejectedCheckpoint]:
        """Saves later than ``least``, which was restored, that never got a manifest."""
        later = [
            name
            for name in self._place.names()
            if name not in tried and (least is None or name > least)
        ]
        found = []
        for name in later:
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
                f"{self._place.path(name)}: {error.message}", hint=error.hint
            ) from error
        return RestoredCheckpoint(str(name), manifest, state, durable_step=manifest.step)


def _read_state(manifest: Manifest, read: Callable[[Part], bytes]) -> dict[str, Any]:
    """Raises ValueError where it is not valid, CheckpointError where it may not be loaded."""
    parts = {part.name: part for part in manifest.parts}
    try:
        if OBJECTS not in parts:
            raise ValueError(f"the manifest names no {OBJECTS}")
        objects = read(parts.pop(OBJECTS))
        tensors = list(parts.values())
        sizes = [part.size_bytes for part in tensors]
        return rebuild_state(objects, sizes, lambda number: read(tensors[number]))
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            "it is whole but holds objects that PyTorch does not load safely: "
            f"{str(error).splitlines()[0]}",
            hint=SAFE_HINT,
            code="unsafe_objects",
        ) from error


def _state(
    step: int, values: dict[str, Any], world_size: int, labels: Mapping[str, str] | None
) -> SaveState:
    return SaveState(step, values, world_size, tuple((labels or {}).items()))
