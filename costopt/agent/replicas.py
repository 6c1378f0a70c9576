"""This node's part in replicating snapshots: for its own trainers, and for other nodes."""

from __future__ import annotations

import sys
import time

from costopt.agent.peers import PeerMonitor
from costopt.agent.settings import AgentSettings
from costopt.checkpoint.replicas.agent_socket import SnapshotSocketServer
from costopt.checkpoint.replicas.local import DiskTier, MemoryTier
from costopt.checkpoint.replicas.manager import ReplicaGroup, ReplicaManager
from costopt.checkpoint.replicas.peer import PeerClient, PeerServer
from costopt.checkpoint.replicas.wire import GangKey
from costopt.domain.errors import StoreError
from costopt.protocol.messages import Gang

HEARTBEAT_TIMEOUT_S = 5.0
"""A peer without a heartbeat for this long is sent no replicas."""


class ReplicaService:
    """Stores snapshots for this node's trainers and for peers. Nothing is served before ``open``.

    Without memory for snapshots nothing is ever served; if the node's address is unavailable, only
    its own trainers are served. ``address`` is what other nodes reach, "" if nothing is served to
    them.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._key: GangKey | None = None
        self._tiers = ReplicaManager(MemoryTier(settings.snapshot_bytes), _disk(settings))
        self._desk: SnapshotSocketServer | None = None
        self._server: PeerServer | None = None

    @property
    def address(self) -> str:
        """Return "host:port" for the heartbeat."""
        return "" if self._server is None else self._server.address

    @property
    def socket_server(self) -> str | None:
        """Return the socket given to this node's trainers; None if no snapshots are stored."""
        return None if self._desk is None else self._desk.address

    def open(self, gang: Gang) -> None:
        """Serve the nodes of this gang, and no node of an older one.

        A trainer that hands over still sends its last snapshot to members of the new gang.
        """
        if self._settings.snapshot_bytes <= 0 or sys.platform != "linux":
            return
        if self._desk is None:
            self._desk = SnapshotSocketServer(self._tiers)
            self._serve()
        key = gang.key
        if key == self._key:
            return
        self._key = key
        if self._server is not None:
            self._server.key = key
        old = self._tiers.circle
        kept = () if old is None else tuple(p for p in old.peers if p.node in gang.members)
        receivers = () if old is None else tuple(p for p in old.receivers if p in kept)
        self._tiers.circle = None if key is None else ReplicaGroup(key, kept, receivers)

    def follow(self, gang: Gang, peers: PeerMonitor) -> None:
        """Replicate to the peers heard from recently, by rank: to those of this node's zone, or
        across zones to those of others first.

        Snapshots are fetched from all of them: one that only another zone has is worth its price.
        """
        key, own = self._key, gang.rank(self._settings.node_id)
        if key is None or own is None or key.generation != gang.generation:
            return
        after = (*gang.members[own + 1 :], *gang.members[:own])
        addresses = peers.snapshot_addresses(since=time.monotonic() - HEARTBEAT_TIMEOUT_S)
        found = [PeerClient(n, addresses[n], gang.zone(n)) for n in after if n in addresses]
        zone = gang.zone(self._settings.node_id)
        here = tuple(peer for peer in found if peer.zone == zone)
        others = tuple(peer for peer in found if peer.zone != zone)
        receivers = (*others, *here) if gang.across_zones else here
        self._tiers.circle = ReplicaGroup(key, (*here, *others), receivers)

    def forget(self) -> None:
        """Free memory and disk: the job is done."""
        self._tiers.clear()

    def close(self) -> None:
        """Stop serving. What is on disk stays."""
        for each in (self._desk, self._server):
            if each is not None:
                each.close()
        self._tiers.memory.clear()

    def _serve(self) -> None:
        try:
            self._server = PeerServer(self._tiers.memory, host=self._settings.host)
        except StoreError as error:
            print(error, file=sys.stderr, flush=True)  # noqa: T201


def _disk(settings: AgentSettings) -> DiskTier | None:
    if settings.snapshot_folder is None or settings.snapshot_disk_bytes <= 0:
        return None
    return DiskTier(settings.snapshot_folder / settings.job, settings.snapshot_disk_bytes)
