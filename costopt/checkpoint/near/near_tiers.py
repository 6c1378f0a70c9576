"""The near tiers of one node: what becomes of a snapshot, and where one can be had."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from costopt.checkpoint.arena import Arena
from costopt.checkpoint.near.disk import SnapshotDisk
from costopt.checkpoint.near.gang_key import GangKey
from costopt.checkpoint.near.memory import Held, SnapshotMemory
from costopt.checkpoint.near.peer import Peer
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.checkpoint.near.tier import Kept, Tier
from costopt.domain.errors import CheckpointError, CostoptError

PEERS_TRIED = 2


@dataclass(frozen=True, slots=True)
class Circle:
    """The gang as this node sees it: its key, and the other nodes, who is to hold first."""

    key: GangKey
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A snapshot that can be had. ``node`` is "" for this one."""

    tier: Tier
    snapshot: Snapshot
    node: str = ""


@dataclass(slots=True)
class NearTiers:
    """``circle`` is None while there is nobody to share with. For several threads."""

    memory: SnapshotMemory
    disk: SnapshotDisk | None = None
    circle: Circle | None = None
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, held: Held) -> Iterator[Kept]:
        """Hold a trainer's snapshot here, give it to a peer and write it to the disk; tells of
        each as it is done, of failures too. Ends when none of them reads the arena any more."""
        yield _told(Tier.MEMORY, lambda: self._hold(held))
        done: queue.SimpleQueue[Kept] = queue.SimpleQueue()
        works = [(Tier.PEER, lambda: self._give(held))] if self._peers() else []
        if self.disk is not None:
            works.append((Tier.DISK, lambda: self._write(held)))
        for tier, work in works:
            threading.Thread(target=_tell, args=(tier, work, done), daemon=True).start()
        for _ in works:
            yield done.get()

    def offers(self) -> tuple[Offer, ...]:
        """Every snapshot within reach, those of this node first. Peers that do not answer offer
        nothing."""
        found = [Offer(Tier.MEMORY, held.snapshot) for held in self.memory.held()]
        if self.disk is not None:
            found += [Offer(Tier.DISK, snapshot) for snapshot in self.disk.snapshots()]
        circle = self.circle
        if circle is not None and circle.peers:
            with ThreadPoolExecutor(len(circle.peers)) as pool:
                for offered in pool.map(lambda peer: _offered(peer, circle.key), circle.peers):
                    found += offered
        return tuple(found)

    def fetch(self, offer: Offer) -> Held:
        """A snapshot from this node's memory or a peer's. Raises CheckpointError."""
        if offer.tier is Tier.PEER:
            return self._fetched(offer)
        held = self.memory.find(offer.snapshot)
        if held is None:
            raise CheckpointError(f"{offer.snapshot.title} is not here any more")
        return held

    def clear(self) -> None:
        """Forget all of it: the job is done."""
        self.memory.clear()
        if self.disk is not None:
            with self._writing:
                self.disk.clear()

    def _peers(self) -> tuple[Peer, ...]:
        return () if self.circle is None else self.circle.peers

    def _hold(self, held: Held) -> Kept:
        self.memory.hold(held)
        return Kept(Tier.MEMORY)

    def _write(self, held: Held) -> Kept:
        assert self.disk is not None
        with self._writing:
            self.disk.write(held.snapshot, held.view)
        return Kept(Tier.DISK)

    def _give(self, held: Held) -> Kept:
        """To the first peer that takes it."""
        assert self.circle is not None
        circle, complaints = self.circle, []
        for peer in circle.peers[:PEERS_TRIED]:
            try:
                peer.give(circle.key, held.snapshot, held.view)
            except CheckpointError as error:
                complaints.append(error.message)
            else:
                return Kept(Tier.PEER, peer.node, peer.zone)
        raise CheckpointError("; ".join(complaints))

    def _fetched(self, offer: Offer) -> Held:
        circle = self.circle
        peers = () if circle is None else circle.peers
        for peer in peers:
            if peer.node == offer.node and circle is not None:
                held = Held(offer.snapshot, Arena.create(offer.snapshot.size_bytes))
                peer.fetch(circle.key, offer.snapshot, held.view)
                return held
        raise CheckpointError(f"{offer.node} is no member of this gang any more")


def _tell(tier: Tier, work: Callable[[], Kept], done: queue.SimpleQueue[Kept]) -> None:
    done.put(_told(tier, work))


def _told(tier: Tier, work: Callable[[], Kept]) -> Kept:
    """A tier that fails costs the others nothing, and the training neither."""
    try:
        return work()
    except CostoptError as error:
        return Kept(tier, complaint=error.message)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must be heard of
        return Kept(tier, complaint=f"{type(error).__name__}: {error}")


def _offered(peer: Peer, key: GangKey) -> list[Offer]:
    try:
        return [Offer(Tier.PEER, snapshot, peer.node) for snapshot in peer.snapshots(key)]
    except CheckpointError:
        return []
