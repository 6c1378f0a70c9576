"""The near tiers of one node: where a snapshot is replicated, and where one is available."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from costopt.checkpoint.replicas.local import DiskTier, MemorySnapshot, MemoryTier
from costopt.checkpoint.replicas.peer import PeerClient
from costopt.checkpoint.replicas.snapshot import Replica, Snapshot, Tier
from costopt.checkpoint.replicas.wire import GangKey
from costopt.checkpoint.writer_client import SharedMemory
from costopt.domain.errors import CheckpointError, CostoptError

PEERS_TRIED = 2


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The gang as this node sees it: its key, the other nodes in the order in which their snapshots
    are preferred, and those that this node's are sent to, in order of preference."""

    key: GangKey
    peers: tuple[PeerClient, ...]
    receivers: tuple[PeerClient, ...]


@dataclass(frozen=True, slots=True)
class AvailableSnapshot:
    """A snapshot that is available. ``node`` is "" for this one."""

    tier: Tier
    snapshot: Snapshot
    node: str = ""


@dataclass(slots=True)
class ReplicaManager:
    """Stores and fetches snapshots in the near tiers, for several threads.

    ``circle`` is None while there are no peers to share with.
    """

    memory: MemoryTier
    disk: DiskTier | None = None
    circle: ReplicaGroup | None = None
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def store(self, held: MemorySnapshot) -> Iterator[Replica]:
        """Store a trainer's snapshot in memory, send it to a peer and write it to disk.

        Yield each result, failures included. Ends when none of them reads the arena any more.
        """
        yield _attempt(Tier.MEMORY, lambda: self._hold(held))
        done: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        works = [(Tier.PEER, lambda: self._give(held))] if self._receivers() else []
        if self.disk is not None:
            works.append((Tier.DISK, lambda: self._write(held)))
        for tier, work in works:
            threading.Thread(target=_put_attempt, args=(tier, work, done), daemon=True).start()
        for _ in works:
            yield done.get()

    def available(self) -> tuple[AvailableSnapshot, ...]:
        """Return every available snapshot, those of this node first; skip unreachable peers."""
        found = [AvailableSnapshot(Tier.MEMORY, held.snapshot) for held in self.memory.newest()]
        if self.disk is not None:
            found += [AvailableSnapshot(Tier.DISK, snapshot) for snapshot in self.disk.snapshots()]
        circle = self.circle
        if circle is not None and circle.peers:
            with ThreadPoolExecutor(len(circle.peers)) as pool:
                for offered in pool.map(lambda peer: _offered(peer, circle.key), circle.peers):
                    found += offered
        return tuple(found)

    def fetch(self, offer: AvailableSnapshot) -> MemorySnapshot:
        """Return a snapshot in this node's memory or a peer's. Raise CheckpointError if gone."""
        if offer.tier is Tier.PEER:
            return MemorySnapshot(offer.snapshot, self.fetch_ranges(offer, None))
        held = self.memory.find(offer.snapshot)
        if held is None:
            raise CheckpointError(f"{offer.snapshot.title} is no longer stored on this node")
        return held

    def clear(self) -> None:
        """Remove all snapshots: the job is done."""
        self.memory.clear()
        if self.disk is not None:
            with self._writing:
                self.disk.clear()

    def _receivers(self) -> tuple[PeerClient, ...]:
        return () if self.circle is None else self.circle.receivers

    def _hold(self, held: MemorySnapshot) -> Replica:
        self.memory.put(held)
        return Replica(Tier.MEMORY)

    def _write(self, held: MemorySnapshot) -> Replica:
        assert self.disk is not None
        with self._writing:
            self.disk.write(held.snapshot, held.view)
        return Replica(Tier.DISK)

    def _give(self, held: MemorySnapshot) -> Replica:
        """Send to the first peer that accepts it."""
        assert self.circle is not None
        circle, complaints = self.circle, []
        for peer in circle.receivers[:PEERS_TRIED]:
            try:
                peer.send(circle.key, held.snapshot, held.view)
            except CheckpointError as error:
                complaints.append(error.message)
            else:
                return Replica(Tier.PEER, peer.node, peer.zone)
        raise CheckpointError("; ".join(complaints))

    def fetch_ranges(
        self, offer: AvailableSnapshot, ranges: Sequence[tuple[int, int]] | None
    ) -> SharedMemory:
        """Return ranges of a peer's snapshot, one after the other, or all of it, verified.

        Raise CheckpointError if it is gone.
        """
        circle = self.circle
        whole = [(0, offer.snapshot.size_bytes)]
        size_bytes = sum(end - begin for begin, end in (ranges or whole))
        for peer in () if circle is None else circle.peers:
            if peer.node == offer.node and circle is not None:
                arena = SharedMemory.create(size_bytes)
                target = memoryview(arena.map)[:size_bytes]
                peer.fetch(circle.key, offer.snapshot, target, ranges)
                return arena
        raise CheckpointError(
            f"{offer.node} is no longer a member of this gang", code="not_a_member"
        )


def _put_attempt(tier: Tier, work: Callable[[], Replica], done: queue.SimpleQueue[Replica]) -> None:
    done.put(_attempt(tier, work))


def _attempt(tier: Tier, work: Callable[[], Replica]) -> Replica:
    """A tier that fails affects neither the others nor the training."""
    try:
        return work()
    except CostoptError as error:
        return Replica(tier, complaint=error.message)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must be heard of
        return Replica(tier, complaint=f"{type(error).__name__}: {error}")


def _offered(peer: PeerClient, key: GangKey) -> list[AvailableSnapshot]:
    try:
        return [
            AvailableSnapshot(Tier.PEER, snapshot, peer.node) for snapshot in peer.snapshots(key)
        ]
    except CheckpointError:
        return []
