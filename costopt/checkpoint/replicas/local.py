"""The tiers of one node: snapshots in its memory and on its disk, both bounded.

Memory holds the newest snapshot of this node's trainers and the newest that a peer sent. The disk
serves a node whose agent is restarted:

<writer>-<step>.<generation>-<microseconds>/
    objects.pt, tensors-NNNNN.bin
    snapshot.json                   written last
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from costopt.checkpoint.manifest import Part
from costopt.checkpoint.replicas.snapshot import Snapshot
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError, StoreError
from costopt.store.folder import FileStore


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A snapshot and its bytes, from the arena's beginning."""

    snapshot: Snapshot
    arena: SharedMemory

    @property
    def view(self) -> memoryview:
        """Return the bytes."""
        return memoryview(self.arena.map)[: self.snapshot.size_bytes]


class MemoryTier:
    """Snapshots in memory, for several threads. One that is replaced stays until the new one is
    complete.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._own: MemorySnapshot | None = None
        self._received: MemorySnapshot | None = None
        self._expected_bytes = 0

    def newest(self) -> tuple[MemorySnapshot, ...]:
        """Return the stored snapshots."""
        with self._lock:
            return tuple(held for held in (self._own, self._received) if held is not None)

    def find(self, snapshot: Snapshot) -> MemorySnapshot | None:
        """Return exactly this snapshot, None if it is not stored."""
        return next((held for held in self.newest() if held.snapshot == snapshot), None)

    def put(self, held: MemorySnapshot) -> None:
        """Store a snapshot of a trainer on this node. Raise CheckpointError if it is too large."""
        with self._lock:
            size_bytes = held.snapshot.size_bytes
            if size_bytes + self._expected_bytes > self.max_bytes:
                raise self._no_room(held.snapshot)
            self._own = held
            if self._sum() > self.max_bytes:
                self._received = None

    @contextmanager
    def receiving(self, snapshot: Snapshot) -> Iterator[memoryview]:
        """Reserve memory to receive a peer's snapshot, stored if the block ends without an error.

        Raise CheckpointError: no space, or a newer one is stored or being received.
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
        """Free all memory."""
        with self._lock:
            self._own = self._received = None

    def _reserve(self, snapshot: Snapshot) -> SharedMemory:
        with self._lock:
            if self._received is not None and self._received.snapshot.age > snapshot.age:
                raise CheckpointError(
                    f"{snapshot.title} comes after a newer one", code="out_of_order"
                )
            if self._sum() + snapshot.size_bytes > self.max_bytes:
                self._drop_stale(snapshot)
            if self._sum() + snapshot.size_bytes > self.max_bytes:
                raise self._no_room(snapshot)
            self._expected_bytes += snapshot.size_bytes
        try:
            return SharedMemory.create(snapshot.size_bytes)
        except CheckpointError:
            with self._lock:
                self._expected_bytes -= snapshot.size_bytes
            raise

    def _drop_stale(self, incoming: Snapshot) -> None:
        """Remove what generations before the incoming snapshot's have left."""
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
        size, most = snapshot.size_bytes / 2**20, self.max_bytes / 2**20
        return CheckpointError(
            f"{snapshot.title} ({size:.0f} MiB) does not fit into the {most:.0f} MiB for snapshots",
            hint="set the agents' --snapshot-gib to twice the size of the state",
            code="no_room",
        )


RECORD = "snapshot.json"


class DiskTier:
    """Snapshots on disk, for one writer at a time. ``folder`` contains nothing else."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._store = FileStore(folder)

    def write(self, snapshot: Snapshot, view: memoryview) -> None:
        """Make a snapshot durable on this disk, then remove older ones. Raise CheckpointError: no
        space.

        The previous one stays until the new one is complete if there is space for both.
        """
        size_bytes = snapshot.size_bytes
        if size_bytes > self.max_bytes:
            raise CheckpointError(
                f"{snapshot.title} ({size_bytes / 2**20:.0f} MiB) is larger than the "
                f"{self.max_bytes / 2**20:.0f} MiB for snapshots on disk",
                hint="raise --snapshot-disk-gib",
                code="too_large",
            )
        names = {name: found for name, found in self._found().items() if found != snapshot}
        keep = max(names, key=lambda n: names[n].age, default=None)
        if keep is not None and names[keep].size_bytes + size_bytes > self.max_bytes:
            keep = None
        self._remove_all_but(keep)
        name = _name(snapshot)
        try:
            for part, begin in snapshot.extents():
                data = cast("bytes", view[begin : begin + part.size_bytes])
                self._store.put(f"{name}/{part.name}", data)
            self._store.put(f"{name}/{RECORD}", json.dumps(snapshot.encode()).encode())
        except StoreError as error:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            raise CheckpointError(
                error.message, hint=error.hint, code=error.code, subject=error.subject
            ) from error
        self._remove_all_but(name)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots that were written completely."""
        return tuple(self._found().values())

    def read(self, snapshot: Snapshot, part: Part) -> bytes:
        """Return the verified bytes of a part. Raise ValueError if they are damaged or missing."""
        try:
            data = (self.folder / _name(snapshot) / part.name).read_bytes()
        except OSError as error:
            raise ValueError(f"{part.name}: {error.strerror}") from error
        part.check(memoryview(data))
        return data

    def clear(self) -> None:
        """Free all space."""
        self._remove_all_but(None)

    def _found(self) -> dict[str, Snapshot]:
        found = {}
        for path in self.folder.glob(f"*/{RECORD}"):
            with suppress(OSError, ValueError):
                found[path.parent.name] = Snapshot.decode(json.loads(path.read_bytes()))
        return found

    def _remove_all_but(self, kept: str | None) -> None:
        for path in self.folder.glob("*/"):
            if path.name != kept:
                (path / RECORD).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)


def _name(snapshot: Snapshot) -> str:
    manifest = snapshot.manifest
    micro = round(manifest.at * 1e6)
    return f"{snapshot.writer}-{manifest.step}.{manifest.generation}-{micro}"
