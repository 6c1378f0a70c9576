"""Saves and restores a state dictionary: durable, verified, the newest valid one first."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from costopt.agent.status import RefusedCheckpoint, SavedCheckpoint
from costopt.checkpoint.commit import SUPERSEDED_HINT, SupersededError
from costopt.checkpoint.keep import KeepRule
from costopt.checkpoint.line import head_now
from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.name import CheckpointName
from costopt.checkpoint.place import CheckpointPlace
from costopt.checkpoint.process_start import process_started_at
from costopt.domain.errors import CheckpointError
from costopt.train.outcome import Outcome, SaveFailed
from costopt.train.save_queue import SaveQueue, State
from costopt.train.state_layout import rebuild

OBJECTS = "objects.pt"
FIRST_STATE = "state.pt"
"""The whole state in one file, as the first version wrote it."""
SAFE_HINT = "allow them with torch.serialization.add_safe_globals before attaching"


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint that was read and verified whole."""

    name: str
    manifest: Manifest
    state: dict[str, Any]


class Checkpointer:
    """Checkpoints under one URI: a path, file://, s3:// or gs://. Usable alone, by one writer.

    ``save`` blocks until the state is durable. ``begin`` only copies it into shared memory; a
    process of its own, which a crash of this one does not end, writes it, and ``poll`` or ``wait``
    tell how that went.

    ``keep`` says which checkpoints are kept, a number the newest so many. ``generation`` numbers
    the incarnation of the job: one of a later generation, or a later one of the same that has
    claimed the place, supersedes this one, whose saves then fail. Restoring takes over a later
    generation that was at work before this process began; 0 takes over any. ``refused`` names what
    the last restore passed over and why.
    """

    def __init__(self, uri: str | Path, *, keep: int | KeepRule = 3, generation: int = 0) -> None:
        rule = KeepRule(keep) if isinstance(keep, int) else keep
        self.uri = str(uri) if "://" in str(uri) else str(Path(uri).absolute())
        self.refused: tuple[RefusedCheckpoint, ...] = ()
        self._place = CheckpointPlace.open(self.uri)
        self._queue = SaveQueue(self._place, rule, generation)

    @property
    def generation(self) -> int:
        """The number under which this one saves."""
        return self._queue.generation

    def follow(self, generation: int) -> None:
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
        and the snapshot dies with the process. Raises CheckpointError: no memory, or objects that
        could not be loaded again.
        """
        if self._queue.is_busy():
            return False
        self._queue.add(_state(step, state, world_size, labels), overlap=overlap)
        return True

    def copied(self) -> None:
        """Wait until the tensors may be changed again: call it before the optimizer steps."""
        self._queue.join_copy()

    def poll(self) -> tuple[Outcome, ...]:
        """The saves that ended since the last call, in order; waits for nothing."""
        return self._queue.outcomes(wait=False)

    def wait(self) -> tuple[Outcome, ...]:
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
        ticket = self._queue.add(_state(step, state, world_size, labels), overlap=False)
        outcome = self._queue.outcome_of(ticket)
        if isinstance(outcome, SaveFailed):
            raise outcome.error
        return outcome

    def restore(self) -> Restored | None:
        """The newest valid checkpoint, or None where there is none.

        Tensors are on the CPU. Raises CheckpointError where a whole checkpoint holds objects
        that may not be loaded safely.
        """
        names, complaint = self._place.candidates()
        refused = [] if complaint is None else [self._refusal("HEAD", complaint)]
        restored = None
        for name in names:
            try:
                restored = self._read(name)
                break
            except ValueError as error:
                refused.append(self._refusal(str(name), str(error)))
        self.refused = (*self._cut_short(set(names), restored), *refused)
        if restored is not None:
            self._resume_from(restored)
        return restored

    def load(self, name: str) -> Restored:
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

    def describe(self, restored: Restored) -> SavedCheckpoint:
        """A restored checkpoint as a report of it."""
        manifest = restored.manifest
        return SavedCheckpoint(
            name=restored.name,
            units=float(manifest.step),
            uri=self._place.path(restored.name),
            at=manifest.at,
            size_bytes=manifest.size_bytes,
            save_s=manifest.save_s,
        )

    def close(self) -> None:
        """Wait for what is in flight, then end the writing process and free the memory."""
        self._queue.close()

    def _resume_from(self, restored: Restored) -> None:
        head = head_now(self._place)
        latest = restored.manifest.generation if head is None else head.generation
        if head is not None and 0 < self.generation < latest and head.at > process_started_at():
            raise SupersededError(
                f"generation {self.generation} goes on from nothing in {self.uri}: generation "
                f"{latest} has taken over since this process began",
                hint=SUPERSEDED_HINT,
            )
        generation = max(self.generation, restored.manifest.generation, latest)
        self._queue.resume(restored.name, generation)

    def _cut_short(
        self, tried: set[CheckpointName], restored: Restored | None
    ) -> list[RefusedCheckpoint]:
        """Saves later than what was restored that never got a manifest."""
        least = None if restored is None else CheckpointName.parse(restored.name)
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

    def _refusal(self, name: str, message: str) -> RefusedCheckpoint:
        return RefusedCheckpoint(name, self._place.path(name), message)

    def _read(self, name: CheckpointName) -> Restored:
        manifest = self._place.manifest(name)
        parts = {part.name: part for part in manifest.parts}
        try:
            if FIRST_STATE in parts:
                data = self._place.read(name, parts[FIRST_STATE])
                state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            elif OBJECTS in parts:
                objects = self._place.read(name, parts.pop(OBJECTS))
                tensors = list(parts.values())
                state = rebuild(
                    objects,
                    [part.size_bytes for part in tensors],
                    lambda number: self._place.read(name, tensors[number]),
                )
            else:
                raise ValueError(f"the manifest names no {OBJECTS}")
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{self._place.path(name)} is whole but holds objects that PyTorch does not "
                f"load safely: {str(error).splitlines()[0]}",
                hint=SAFE_HINT,
            ) from error
        return Restored(str(name), manifest, state)


def _state(
    step: int, values: dict[str, Any], world_size: int, labels: Mapping[str, str] | None
) -> State:
    return State(step, values, world_size, tuple((labels or {}).items()))
