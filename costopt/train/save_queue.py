"""Saves in progress: from this process through shared memory to the process that writes them.

A save ends as a checkpoint or as a ``FailedSave``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import torch

from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.replicas.snapshot import Replica, Tier
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.commit import ShardGroup
from costopt.checkpoint.writer_client import SharedMemory, WriterProcess
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint
from costopt.train.safe_objects import check_objects
from costopt.train.state_layout import CopyLayout, SnapshotCopy, StateLayout

SLOTS = 2
"""Buffers: only a save that cannot wait until the first is written uses the second. A rank with
near tiers, which read its two newest snapshots in their buffers, has one more.
"""

MAX_REMEMBERED_REPLICAS = 64


@dataclass(frozen=True, slots=True)
class SaveState:
    """The state and metadata to save."""

    step: int
    values: dict[str, Any]
    world_size: int
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Pending:
    step: int
    slot: int


class SaveQueue:
    """Saves are written in the order in which they were added. Not safe for concurrent threads."""

    def __init__(
        self,
        place: CheckpointRepository,
        keep: RetentionPolicy,
        generation: int,
        near: str | None = None,
        group: ShardGroup | None = None,
        shared: str | None = None,
    ) -> None:
        """``near`` is the address of this node's near tiers; None if there are none.

        ``group`` are the ranks that save a sharded state together; they have claimed the
        repository. Those on this node, for which ``shared`` is equal, have one writing process.
        """
        self._near = near
        self._group = group
        self._shared = shared
        self._kept: deque[tuple[int, Replica]] = deque(maxlen=MAX_REMEMBERED_REPLICAS)
        self._slots = list(range(SLOTS + (near is not None and group is not None)))
        """The buffers, that used last at the end."""
        self._place = place
        self._keep = keep
        self._generation = generation
        self._parent: str | None = None
        self._token = uuid.uuid4().hex if group is None else group.token
        self._claimed = group is not None
        self._writer: WriterProcess | None = None
        self._arenas: dict[int, SharedMemory] = {}
        self._given: set[int] = set()
        self._snapshot: SnapshotCopy | None = None
        self._copying: int | None = None
        self._pending: dict[int, _Pending] = {}
        self._ended: dict[int, SaveOutcome] = {}
        self._lost: set[int] = set()
        """Steps that failed here: the next writer abandons them, else other ranks wait for them."""
        self._refused_claims: dict[int, CheckpointError] = {}
        self._tickets = 0
        self._is_checked = False
        self._may_overlap = True

    @property
    def writer_pid(self) -> int | None:
        """Return the writing process' id; None until it is needed."""
        return None if self._writer is None else self._writer.pid

    def is_busy(self) -> bool:
        """Whether a save is being copied or written."""
        self._look()
        return bool(self._pending)

    def add(self, state: SaveState, *, overlap: bool = False, as_delta: bool = False) -> int:
        """Begin a save and return its ticket; wait while every buffer is in use.

        Raise CheckpointError: no memory, no process, or objects that could not be loaded again.
        """
        self.wait_for_copy()
        return self._add(state, self._layout(state.values), {"as_delta": as_delta}, overlap=overlap)

    def add_shards(
        self,
        state: SaveState,
        layout: CopyLayout,
        layout_bytes: int,
        *,
        overlap: bool,
        as_delta: bool = False,
    ) -> int:
        """Begin to save this rank's part of a sharded state, as ``add`` does.

        Its tensors are those of ``layout``, whose rest begins with ``layout_bytes`` that say what
        they are.
        """
        self.wait_for_copy()
        kind = {"layout_bytes": layout_bytes, "as_delta": as_delta}
        try:
            return self._add(state, layout, kind, overlap=overlap)
        except CheckpointError:
            self._lost.add(state.step)
            raise

    def _add(
        self, state: SaveState, layout: CopyLayout, kind: dict[str, Any], *, overlap: bool
    ) -> int:
        self._look()
        began_at = time.monotonic()
        slot = self._free_slot()
        writer = self._running_writer()
        ticket = self._ticket()
        if self._group is not None and (lost := self._lost - {state.step}):
            writer.request({"op": "abandon", "steps": sorted(lost)})
        self._lost.clear()
        message = {
            "op": "save",
            "ticket": ticket,
            "slot": slot,
            "step": state.step,
            "world_size": state.world_size,
            "labels": state.labels,
            "began_at": began_at,
            "tensor_bytes": layout.tensor_bytes,
            **kind,
        }
        self._snapshot = SnapshotCopy(
            layout,
            lambda size_bytes: self._arena(writer, slot, size_bytes),
            lambda object_bytes: writer.request({**message, "object_bytes": object_bytes}),
            overlap=overlap and self._may_overlap,
        )
        self._pending[ticket] = _Pending(state.step, slot)
        self._copying = ticket
        return ticket

    def wait_for_copy(self) -> None:
        """Wait until no copy is in progress. A copy that failed is an outcome."""
        if self._snapshot is None or self._copying is None:
            return
        snapshot, ticket = self._snapshot, self._copying
        self._snapshot = self._copying = None
        error = snapshot.join()
        if error is not None and ticket in self._pending:
            self._may_overlap = self._may_overlap and not snapshot.was_changed
            self._lose(ticket, error)

    def claim(self, *, wait: bool) -> None:
        """Claim the repository. Raise CheckpointError: superseded, or the store refuses."""
        ticket = self._ticket()
        self._running_writer().request({"op": "claim", "ticket": ticket})
        if not wait:
            return
        self._claimed = False
        while not self._claimed:
            self._receive(wait=True)
            if ticket in self._refused_claims:
                raise self._refused_claims.pop(ticket)
            if self._writer is None:
                raise CheckpointError("the process that writes checkpoints ended while starting")

    @property
    def generation(self) -> int:
        """Return the generation under which states are saved."""
        return self._generation

    def resume(self, parent: str | None, generation: int) -> None:
        """Let the next save continue from ``parent``; None: from the newest checkpoint by then."""
        self._claimed = self._claimed and generation == self._generation
        self._parent, self._generation = parent, generation
        if self._writer is not None:
            message = {"op": "resume", "parent": parent, "generation": generation}
            self._writer.request(message)

    def outcomes(self, *, wait: bool) -> tuple[SaveOutcome, ...]:
        """Return the outcomes not returned before, in order; with ``wait``, those of all saves."""
        self._look()
        if wait:
            self.wait_for_copy()
            while self._pending:
                self._receive(wait=True)
        ended = tuple(self._ended[ticket] for ticket in sorted(self._ended))
        self._ended.clear()
        return ended

    def outcome_of(self, ticket: int) -> SavedCheckpoint:
        """Wait for one save and return it. Raise CheckpointError if it failed."""
        self.wait_for_copy()
        while ticket not in self._ended:
            self._receive(wait=True)
        outcome = self._ended.pop(ticket)
        if isinstance(outcome, FailedSave):
            raise outcome.error
        return outcome

    def pop_replicas(self) -> tuple[Replica, ...]:
        """Return the results of the near tiers since the last call, in order."""
        kept = tuple(kept for _, kept in self._kept)
        self._kept.clear()
        return kept

    def outcome_or_peer(self, ticket: int) -> SavedCheckpoint | Replica:
        """Wait for one save and return it as ``outcome_of`` does, or the peer that holds it.

        The peer is returned if it has the snapshot first, or if the save failed.
        """
        self.wait_for_copy()
        while ticket not in self._ended and self._peer_with(ticket) is None:
            self._receive(wait=True)
        peer = self._peer_with(ticket)
        if peer is None or isinstance(self._ended.get(ticket), SavedCheckpoint):
            return self.outcome_of(ticket)
        self._ended.pop(ticket, None)
        return peer

    def close(self) -> None:
        """Let everything be written, end the process and free the memory."""
        self.wait_for_copy()
        while self._pending:
            self._receive(wait=True)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._arenas.clear()
        self._given.clear()

    def _layout(self, values: dict[str, Any]) -> StateLayout:
        layout = StateLayout.of(values)
        if not self._is_checked:
            check_objects(layout.rest)
            self._is_checked = True
        return layout

    def _peer_with(self, ticket: int) -> Replica | None:
        peers = (kept for number, kept in self._kept if number == ticket and not kept.complaint)
        return next((kept for kept in peers if kept.tier is Tier.PEER), None)

    def _free_slot(self) -> int:
        while True:
            used = {pending.slot for pending in self._pending.values()}
            free = [slot for slot in self._slots if slot not in used]
            if free:
                # Without near tiers one buffer is enough while it is free.
                chosen = min(free) if self._near is None else free[0]
                self._slots.remove(chosen)
                self._slots.append(chosen)
                return chosen
            self._receive(wait=True)

    def _running_writer(self) -> WriterProcess:
        """Return the writer; start one if there is none or this process is a fork of its owner."""
        if self._writer is not None and self._writer.of_pid != os.getpid():
            self._writer = None
            self._arenas.clear()
            self._pending.clear()
        if self._writer is None:
            self._given.clear()
            identity = self._place.identity
            self._writer = WriterProcess(
                {
                    "uri": self._place.uri,
                    "identity": None if identity is None else asdict(identity),
                    "near": self._near,
                    "generation": self._generation,
                    "keep": asdict(self._keep),
                    "torch_version": str(torch.__version__),
                    "parent": self._parent,
                    "writer": self._token,
                    "claimed": self._claimed,
                    "group": None if self._group is None else asdict(self._group),
                },
                self._shared,
            )
        return self._writer

    def _arena(self, writer: WriterProcess, slot: int, size_bytes: int) -> SharedMemory:
        arena = self._arenas.get(slot)
        if arena is None or arena.size_bytes < size_bytes:
            arena = self._arenas[slot] = SharedMemory.create(size_bytes)
            self._given.discard(slot)
        if slot not in self._given:
            writer.send(slot, arena)
            self._given.add(slot)
        return arena

    def _look(self) -> None:
        """Process what has arrived, without waiting."""
        if self._snapshot is not None and self._snapshot.is_done():
            self.wait_for_copy()
        if self._writer is not None and self._writer.of_pid == os.getpid():
            self._receive(wait=False)

    def _receive(self, *, wait: bool) -> None:
        if self._writer is None:
            self._end_all(CheckpointError("the process that writes checkpoints is not running"))
            return
        try:
            for response in self._writer.replies(wait=wait):
                self._take(response)
        except CheckpointError as error:
            self.wait_for_copy()
            self._writer = None
            self._end_all(error)

    def _take(self, response: dict[str, Any]) -> None:
        if "claimed" in response:
            self._claimed = True
        elif "kept" in response:
            ticket = response.pop("kept")
            self._kept.append((ticket, Replica(**{**response, "tier": Tier(response["tier"])})))
        elif "saved" in response:
            self._claimed = True
            self._parent = response["name"]
            self._end(response["saved"], self._saved(response))
        else:
            error = CheckpointError(
                response["message"], hint=response["hint"], code=response["code"]
            )
            ticket = response["failed"]
            if ticket in self._pending:
                self._end(ticket, FailedSave(self._pending[ticket].step, error))
            elif ticket is not None:
                self._refused_claims[ticket] = error

    def _saved(self, response: dict[str, Any]) -> SavedCheckpoint:
        return SavedCheckpoint(
            name=response["name"],
            units=float(self._pending[response["saved"]].step),
            uri=self._place.path(response["name"]),
            at=response["at"],
            size_bytes=response["size_bytes"],
            save_s=response["save_s"],
        )

    def _end(self, ticket: int, outcome: SaveOutcome) -> None:
        del self._pending[ticket]
        self._ended[ticket] = outcome

    def _end_all(self, error: CheckpointError) -> None:
        for ticket in sorted(self._pending):
            self._lose(ticket, error)

    def _lose(self, ticket: int, error: CheckpointError) -> None:
        step = self._pending[ticket].step
        self._lost.add(step)
        self._end(ticket, FailedSave(step, error))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets


@dataclass(frozen=True, slots=True)
class FailedSave:
    """A save that did not become a checkpoint; earlier checkpoints still exist."""

    step: int
    error: CheckpointError


SaveOutcome = SavedCheckpoint | FailedSave
