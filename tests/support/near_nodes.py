"""Nodes with near tiers, in this process: each sends its snapshots to the next in a ring."""

from __future__ import annotations

from pathlib import Path

from costopt.checkpoint.replicas.agent_socket import SnapshotSocketServer
from costopt.checkpoint.replicas.local import DiskTier, MemoryTier
from costopt.checkpoint.replicas.manager import ReplicaGroup, ReplicaManager
from costopt.checkpoint.replicas.peer import PeerClient, PeerServer
from costopt.checkpoint.replicas.wire import GangKey

KEY = GangKey("j", 1, "secret")


class NearNodes:
    """``alive`` nodes of ``count``: the others send snapshots, but nobody fetches from them."""

    def __init__(self, count: int, alive: int, disk: Path | None = None) -> None:
        self.memories = [MemoryTier(1 << 30) for _ in range(count)]
        self.servers = [PeerServer(memory) for memory in self.memories]
        for server in self.servers:
            server.key = KEY
        peers = [PeerClient(f"n{n}", server.address) for n, server in enumerate(self.servers)]
        self.desks = []
        for number, memory in enumerate(self.memories):
            ring = tuple(peers[(number + 1 + n) % count] for n in range(count - 1))
            others = tuple(peer for peer in ring if peer in peers[:alive])
            tier = None if disk is None else DiskTier(disk / f"n{number}", 1 << 30)
            manager = ReplicaManager(memory, tier, ReplicaGroup(KEY, others, ring[:1]))
            self.desks.append(SnapshotSocketServer(manager))

    @property
    def addresses(self) -> list[str]:
        """What trainers get as COSTOPT_SNAPSHOTS."""
        return [desk.address for desk in self.desks]

    def close(self) -> None:
        """Serve no more."""
        for desk in self.desks:
            desk.close()
        for server in self.servers:
            server.close()
