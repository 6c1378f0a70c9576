"""What a checkpoint writer does for the near tiers, beside its commit to the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from costopt.checkpoint.arena import SharedMemory
from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.line import read_head
from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.near.memory import MemorySnapshot
from costopt.checkpoint.near.near_client import ReplicaClient
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.checkpoint.near.tier import Replica, Tier
from costopt.checkpoint.part import Part
from costopt.domain.errors import CheckpointError, CostoptError

OBJECTS = "objects.pt"

Tell = Callable[[dict[str, Any]], None]


class ReplicaWriter:
    """One snapshot on its way into the near tiers, in a thread: they come first, and the store
    does not wait for them. ``tell`` hears of each tier, as a dictionary of ``Replica``."""

    def __init__(
        self,
        client: ReplicaClient,
        committer: Committer,
        saving: SaveRequest,
        arena: SharedMemory,
        tell: Tell,
    ) -> None:
        self._client, self._committer = client, committer
        self._saving, self._arena, self._tell = saving, arena, tell
        self._parent = committer.parent
        self._generation = committer.generation
        self._thread = threading.Thread(target=self._run, name="near")
        self._thread.start()

    def join(self) -> None:
        """Wait until the arena may change again."""
        self._thread.join()

    def _run(self) -> None:
        try:
            for kept in self._client.store(MemorySnapshot(self._snapshot(), self._arena)):
                self._tell(asdict(kept))
        except CostoptError as error:
            self._tell(asdict(Replica(Tier.MEMORY, complaint=error.message)))

    def _snapshot(self) -> Snapshot:
        saving = self._saving
        # In the arena the objects lie behind the tensors.
        names = sorted(saving.files, key=lambda name: (name == OBJECTS, name))
        manifest = Manifest(
            step=saving.step,
            generation=self._generation,
            world_size=saving.world_size,
            parts=tuple(Part.of(name, saving.files[name]) for name in names),
            at=time.time() - (time.monotonic() - saving.began_at),
            save_s=0.0,
            parent=self._parent or self._newest(),
            origin=self._committer.origin,
            labels=saving.labels,
        )
        return Snapshot(self._committer.writer, manifest)

    def _newest(self) -> str | None:
        """A first save goes on from what is the newest by then."""
        try:
            head = read_head(self._committer.place)
        except CheckpointError:
            return None
        return head.line[0] if head is not None and head.line else None
