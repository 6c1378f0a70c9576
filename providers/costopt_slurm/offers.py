"""Offers: each node type in each partition that the account names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import DRAIN_LEAD, NodeState
from costopt.domain.market import Offer, Pool
from costopt.provider.node_book import NodeBook
from costopt_slurm.cluster_state import ClusterState, NodeListing, reserved_from, run_limit_s
from costopt_slurm.gang_tags import NAME
from costopt_slurm.options import SlurmOptions, SlurmPartition
from costopt_slurm.owned_partition import OwnedPartition
from costopt_slurm.records import PartitionNode, PartitionState

PRICE_SOURCE = "the account file's rate"
NO_PRICE = "the account file names no price: add usd_per_gpu_hour or usd_per_node_hour"
NO_LIMIT = "the partition has neither MaxTime nor DefaultTime: add max_run_h to the account file"


class PartitionOffers:
    """What can be launched now, and until when."""

    def __init__(self, options: SlurmOptions, cluster: ClusterState, book: NodeBook) -> None:
        self._options = options
        self._cluster = cluster
        self._book = book
        self.owned = OwnedPartition(options, cluster, book)

    def now(self, now: datetime) -> tuple[Offer, ...]:
        """Return an offer for every pool. Raise ProviderError where Slurm does not answer."""
        snapshot = self._cluster.snapshot()
        return tuple(
            offer for name in self._options.partitions for offer in self._of(name, snapshot, now)
        )

    def pool(self, partition: str, node_type: str, now: datetime) -> Pool:
        """Return the pool of a node type in a partition. Raise ProviderError."""
        state = self._cluster.partition(partition, now)
        preempted = self._cluster.is_preempted(state, now)
        terms = self._options.partitions[partition].capacity_type(preempted)
        return Pool(NAME, self._options.cluster, partition, node_type, terms)

    def idle(self, pool: Pool, snapshot: NodeListing) -> int:
        """Return how many nodes a launch could get now; ours that wait have theirs coming."""
        hosts = self.hosts(pool, snapshot)
        waiting = [n for n in self._book.in_pool(pool) if n.state is NodeState.WAITING]
        return max(0, sum(node.is_idle for node in hosts) - len(waiting))

    def hosts(self, pool: Pool, snapshot: NodeListing) -> tuple[PartitionNode, ...]:
        """Return the nodes of a pool."""
        partition = self._options.partition_of(pool)
        terms = self._options.partitions[partition]
        node_type = self._options.node_types[self._options.type_and_gpus(pool)[0]]
        hosts = snapshot.hosts_of(partition, node_type, terms.constraint)
        if self._options.is_owned(pool):
            return tuple(node for node in hosts if node.host == pool.zone)
        return hosts

    def _of(self, name: str, snapshot: NodeListing, now: datetime) -> Iterator[Offer]:
        state, terms = self._cluster.partition(name, now), self._options.partitions[name]
        is_owned = name == self._options.owned_partition
        if is_owned and state.is_up and self._cluster.max_run_s(state) is not None:
            yield from self.owned.offers(snapshot, now)
        for node_type in self._options.node_types_of(name):
            if is_owned and node_type in self._options.nodes:
                continue
            yield self._offer(self.pool(name, node_type, now), state, terms, snapshot, now)

    def _offer(
        self,
        pool: Pool,
        state: PartitionState,
        terms: SlurmPartition,
        snapshot: NodeListing,
        now: datetime,
    ) -> Offer:
        usd = terms.usd_per_hour(self._options.node_types[pool.instance_type].gpus)
        limit_s = self._cluster.max_run_s(state)
        price = None if usd is None else Estimate.exact(usd, Basis.LISTED, PRICE_SOURCE, now)
        wait_s = terms.max_wait_s(pool.capacity_type)
        idle = self.idle(pool, snapshot) if state.is_up else 0
        reserved_at = reserved_from(
            snapshot.reservations, self.hosts(pool, snapshot), terms.reservation, now
        )
        if limit_s is not None and run_limit_s(limit_s, reserved_at, now) is None:
            idle = 0
        return Offer(
            pool=pool,
            price_usd_per_hour=None if limit_s is None else price,
            hazard_per_hour=None if pool.capacity_type.is_interruptible else _never(pool),
            nodes_available=None if wait_s > 0 and state.is_up else idle,
            until_at=None if limit_s is None else self._until(pool, limit_s, reserved_at, now),
            unknown_because=NO_LIMIT if limit_s is None else NO_PRICE if usd is None else "",
            wait_s=wait_s,
            is_free=usd == 0,
        )

    def _until(
        self, pool: Pool, limit_s: float, reserved_at: datetime | None, now: datetime
    ) -> datetime:
        """Return until when the pool, with our nodes in it, may be planned on."""
        begun = [
            node.launched_at
            for node in self._book.in_pool(pool)
            if node.state not in (NodeState.WAITING, NodeState.ENDED)
        ]
        lead = min(DRAIN_LEAD, timedelta(seconds=limit_s / 10))
        until_at = min(begun, default=now) + timedelta(seconds=limit_s)
        if reserved_at is not None and reserved_at > now:
            until_at = min(until_at, reserved_at)
        return until_at - lead


def _never(pool: Pool) -> Estimate:
    return Estimate.exact(0.0, Basis.LISTED, f"partition {pool.zone} is not preempted")
