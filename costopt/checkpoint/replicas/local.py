"""The tiers of one node: snapshots in its memory and on its disk, both bounded.

Memory holds the newest snapshot of this node's trainers and the newest that a peer sent; of ranks
that save a sharded state the two newest each, as one counts only if all ranks have taken it. The
disk serves a node whose agent is restarted:

<writer>-<step>.<generation>-<microseconds>[-<rank>]/
    objects.pt, tensors-NNNNN.bin
    snapshot.json                   written last
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
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


Ranked = dict[int | None, tuple[MemorySnapshot, ...]]
"""Snapshots by rank, the newest first."""


class MemoryTier:
    """Snapshots in memory, for several threads. One that is replaced stays until the new one is
    complete.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._own: Ranked = {}
        self._received: Ranked = {}
        self._expected_bytes = 0

    def newest(self) -> tuple[MemorySnapshot, ...]:
        """Return the stored snapshots."""
        with self._lock:
            return tuple(self._all())

    def find(self, snapshot: Snapshot) -> MemorySnapshot | None:
        """Return exactly this snapshot, None if it is not stored."""
        return next((held for held in self.newest() if held.snapshot == snapshot), None)

    def put(self, held: MemorySnapshot) -> None:
        """Store a snapshot of a trainer on this node. Raise CheckpointError if it is too large."""
        with self._lock:
            size_bytes = held.snapshot.size_bytes
            if size_bytes + self._expected_bytes > self.max_bytes:
                raise self._no_room(held.snapshot)
            rank = held.snapshot.rank
            before = self._own.get(rank, ())
            self._own[rank] = _with(held, before)
            self._make_room(held.snapshot, 0, keeps_received=False)
            if self._sum() > self.max_bytes:
                self._own[rank] = before
                raise self._no_room(held.snapshot)

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
                before = self._received.get(snapshot.rank, ())
                self._received[snapshot.rank] = _with(held, before)
        finally:
            with self._lock:
                self._expected_bytes -= snapshot.size_bytes

    def clear(self) -> None:
        """Free all memory."""
        with self._lock:
            self._own, self._received = {}, {}

    def _reserve(self, snapshot: Snapshot) -> SharedMemory:
        with self._lock:
            before = self._received.get(snapshot.rank)
            if before and before[0].snapshot.age > snapshot.age:
                raise CheckpointError(
                    f"{snapshot.title} comes after a newer one", code="out_of_order"
                )
            self._make_room(snapshot, snapshot.size_bytes, keeps_received=True)
            if self._sum() + snapshot.size_bytes > self.max_bytes:
                raise self._no_room(snapshot)
            self._expected_bytes += snapshot.size_bytes
        try:
            return SharedMemory.create(snapshot.size_bytes)
        except CheckpointError:
            with self._lock:
                self._expected_bytes -= snapshot.size_bytes
            raise

    def _make_room(self, incoming: Snapshot, size_bytes: int, *, keeps_received: bool) -> None:
        """Remove what earlier generations left, then ranks' older snapshots, then peers'."""
        generation = incoming.manifest.generation
        steps: list[Callable[[int, MemorySnapshot], bool]] = [
            lambda _, held: held.snapshot.manifest.generation >= generation,
            lambda number, _: number == 0,
        ]
        for stays in steps:
            for ranked in (self._received, self._own):
                for rank, held in tuple(ranked.items()):
                    if self._sum() + size_bytes <= self.max_bytes:
                        return
                    ranked[rank] = tuple(h for n, h in enumerate(held) if stays(n, h))
        if not keeps_received and self._sum() + size_bytes > self.max_bytes:
            self._received = {}

    def _all(self) -> Iterator[MemorySnapshot]:
        for ranked in (self._own, self._received):
            for held in ranked.values():
                yield from held

    def _sum(self) -> int:
        return self._expected_bytes + sum(each.snapshot.size_bytes for each in self._all())

    def _no_room(self, snapshot: Snapshot) -> CheckpointError:
        size, most = snapshot.size_bytes / 2**20, self.max_bytes / 2**20
        return CheckpointError(
            f"{snapshot.title} ({size:.0f} MiB) does not fit into the {most:.0f} MiB for snapshots",
            hint="set the agents' --snapshot-gib to twice the size of the state",
            code="no_room",
        )


def _with(held: MemorySnapshot, before: tuple[MemorySnapshot, ...]) -> tuple[MemorySnapshot, ...]:
    older = tuple(each for each in before if each.snapshot != held.snapshot)
    return (held, *older)[: snapshots_kept(held.snapshot)]


def snapshots_kept(snapshot: Snapshot) -> int:
    """Return how many of its kind a tier holds: ranks take the same step at different times."""
    return 1 if snapshot.rank is None else 2


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
        found = {name: each for name, each in self._found().items() if each != snapshot}
        mine = {n: each for n, each in found.items() if each.rank == snapshot.rank}
        keep = max(mine, key=lambda n: mine[n].age, default=None)
        kept = {n for n in found if n not in mine or n == keep}
        if sum(found[n].size_bytes for n in kept) + size_bytes > self.max_bytes:
            kept.discard(keep or "")
            generation = snapshot.manifest.generation
            kept = {n for n in kept if found[n].manifest.generation >= generation}
        self._remove_all_but(kept)
        name = _name(snapshot)
        try:
            for part, begin in snapshot.extents():
                data = cast("bytes", view[begin : begin + part.size_bytes])
                self._store.put(f"{name}/{part.name}", data)
            # Last: with its record a snapshot is complete.
            self._store.put(f"{name}/{RECORD}", json.dumps(snapshot.encode()).encode())
        except StoreError as error:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            raise CheckpointError(
                error.message, hint=error.hint, code=error.code, subject=error.subject
            ) from error
        if snapshots_kept(snapshot) == 1:
            kept.discard(keep or "")
        self._remove_all_but({*kept, name})

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

    def read_range(self, snapshot: Snapshot, begin: int, end: int) -> bytes:
        """Return bytes of a snapshot, not verified. Raise OSError, or return less, if missing."""
        pieces = []
        for part, first in snapshot.extents():
            start, stop = max(begin, first), min(end, first + part.size_bytes)
            if start < stop:
                with (self.folder / _name(snapshot) / part.name).open("rb") as file:
                    file.seek(start - first)
                    pieces.append(file.read(stop - start))
        return b"".join(pieces)

    def clear(self) -> None:
        """Free all space."""
        self._remove_all_but(set())

    def _found(self) -> dict[str, Snapshot]:
        found = {}
        for path in self.folder.glob(f"*/{RECORD}"):
            with suppress(OSError, ValueError):
                found[path.parent.name] = Snapshot.decode(json.loads(path.read_bytes()))
        return found

    def _remove_all_but(self, kept: Collection[str]) -> None:
        for path in self.folder.glob("*/"):
            if path.name not in kept:
                # First: without its record, what a kill leaves of a snapshot is none.
                (path / RECORD).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)


def _name(snapshot: Snapshot) -> str:
    manifest = snapshot.manifest
    micro = round(manifest.at * 1e6)
    rank = "" if snapshot.rank is None else f"-{snapshot.rank}"
    return f"{snapshot.writer}-{manifest.step}.{manifest.generation}-{micro}{rank}"
