"""Snapshots in this node's memory: its own newest, and the newest that a peer sent. Bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from costopt.checkpoint.arena import SharedMemory
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.domain.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A snapshot and its bytes, from the arena's beginning."""

    snapshot: Snapshot
    arena: SharedMemory

    @property
    def view(self) -> memoryview:
        """The bytes."""
        return memoryview(self.arena.map)[: self.snapshot.size_bytes]


class MemoryTier:
    """For several threads. A snapshot that is replaced stays until the new one is whole."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._own: MemorySnapshot | None = None
        self._received: MemorySnapshot | None = None
        self._expected_bytes = 0

    def newest(self) -> tuple[MemorySnapshot, ...]:
        """What is here."""
        with self._lock:
            return tuple(held for held in (self._own, self._received) if held is not None)

    def find(self, snapshot: Snapshot) -> MemorySnapshot | None:
        """The very same snapshot, where it is here."""
        return next((held for held in self.newest() if held.snapshot == snapshot), None)

    def put(self, held: MemorySnapshot) -> None:
        """Take a snapshot of a trainer on this node. Raises CheckpointError: too large."""
        with self._lock:
            size_bytes = held.snapshot.size_bytes
            if size_bytes + self._expected_bytes > self.most_bytes:
                raise self._no_room(held.snapshot)
            self._own = held
            if self._sum() > self.most_bytes:
                self._received = None

    @contextmanager
    def receiving(self, snapshot: Snapshot) -> Iterator[memoryview]:
        """Memory to receive a peer's snapshot in, kept if the block ends well.

        Raises CheckpointError: no room, or a newer one is here or on its way.
        """
        arena = self._reserve(snapshot)
        try:
            held = MemorySnapshot(snapshot, arena)
            yield held.view
            with self._lock:
                self._received = held
        finally:
            with self._lock:
                self._expected_bytes -= snapshot.size_bytes

    def clear(self) -> None:
        """Give all memory back."""
        with self._lock:
            self._own = self._received = None

    def _reserve(self, snapshot: Snapshot) -> SharedMemory:
        with self._lock:
            if self._received is not None and self._received.snapshot.age > snapshot.age:
                raise CheckpointError(
                    f"{snapshot.title} comes after a newer one", code="out_of_order"
                )
            if self._sum() + snapshot.size_bytes > self.most_bytes:
                self._drop_stale(snapshot)
            if self._sum() + snapshot.size_bytes > self.most_bytes:
                raise self._no_room(snapshot)
            self._expected_bytes += snapshot.size_bytes
        try:
            return SharedMemory.create(snapshot.size_bytes)
        except CheckpointError:
            with self._lock:
                self._expected_bytes -= snapshot.size_bytes
            raise

    def _drop_stale(self, incoming: Snapshot) -> None:
        """Forget what generations before the incoming one's have left."""
        generation = incoming.manifest.generation
        if self._own is not None and self._own.snapshot.manifest.generation < generation:
            self._own = None
        if self._received is not None:
            old = self._received.snapshot.manifest.generation < generation
            self._received = None if old else self._received

    def _sum(self) -> int:
        held = (each for each in (self._own, self._received) if each is not None)
        return self._expected_bytes + sum(each.snapshot.size_bytes for each in held)

    def _no_room(self, snapshot: Snapshot) -> CheckpointError:
        size, most = snapshot.size_bytes / 2**20, self.most_bytes / 2**20
        return CheckpointError(
            f"no room for {snapshot.title} ({size:.0f} MiB) in the {most:.0f} MiB for snapshots",
            hint="give agents twice the size of the state with --snapshot-gib",
            code="no_room",
        )
