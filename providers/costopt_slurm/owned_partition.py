"""The partition that the account owns: each node is a zone, and jobs have slices of nodes.

What others use of a node is left to them: only Slurm's count of GPUs and processors in use is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from costopt.domain.cluster import slice_sizes, slice_type
from costopt.domain.errors import NoCapacityError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import NodeState
from costopt.domain.market import NEVER_INTERRUPTED, CapacityType, Offer, Pool
from costopt.provider.node_book import NodeBook
from costopt_slurm.cluster_state import ClusterState, NodeListing
from costopt_slurm.gang_tags import NAME
from costopt_slurm.options import SlurmOptions
from costopt_slurm.records import NodeLoad

PRICE_SOURCE = "the account file's rate of owned nodes"


class OwnedPartition:
    """Its nodes of the types under ``nodes``, as many of each as it says there."""

    def __init__(self, options: SlurmOptions, cluster: ClusterState, book: NodeBook) -> None:
        self._options = options
        self._cluster = cluster
        self._book = book

    def offers(self, listing: NodeListing, now: datetime) -> Iterator[Offer]:
        """Yield each node and each size of slice of it. Raise ProviderError."""
        loads = self._loads()
        for node_type, host in self._hosts(loads, listing):
            gpus = self._options.node_types[node_type].gpus
            free = loads[host].free_gpus(gpus)
            ours = min(gpus, free + self._held_gpus(host))
            sizes = {slice_type(node_type, part): part for part in slice_sizes(gpus)}
            for name, part in {node_type: gpus, **sizes}.items():
                usd = self._options.usd_per_gpu_hour * part
                yield Offer(
                    pool=Pool(NAME, self._options.cluster, host, name, CapacityType.RESERVED),
                    price_usd_per_hour=Estimate.exact(usd, Basis.LISTED, PRICE_SOURCE, now),
                    hazard_per_hour=NEVER_INTERRUPTED,
                    nodes_available=free // part,
                    is_free=usd == 0,
                    nodes_ours=ours // part,
                )

    def size_options(self, pool: Pool) -> tuple[str, ...]:
        """Return sbatch's options for a slice, with the node's processors and memory in proportion.

        Raise NoCapacityError where the node has no room for it, ProviderError else.
        """
        node_type, gpus = self._options.type_and_gpus(pool)
        whole = self._options.node_types[node_type].gpus
        load = self._loads().get(pool.zone)
        if load is None or load.free_gpus(whole) < gpus:
            raise NoCapacityError(f"{pool}: fewer than {gpus} GPUs of the node are free")
        if gpus == whole:
            return (f"--nodelist={pool.zone}", "--exclusive", "--mem=0")
        return (
            f"--nodelist={pool.zone}",
            f"--cpus-per-task={max(1, load.cpus * gpus // whole)}",
            f"--mem={load.memory_mb * gpus // whole}M",
        )

    def _loads(self) -> Mapping[str, NodeLoad]:
        assert self._options.owned_partition is not None
        return self._cluster.loads(self._options.owned_partition)

    def _hosts(
        self, loads: Mapping[str, NodeLoad], listing: NodeListing
    ) -> Iterator[tuple[str, str]]:
        """Yield type and name of each node."""
        assert self._options.owned_partition is not None
        terms = self._options.partitions[self._options.owned_partition]
        for node_type, count in self._options.nodes.items():
            shape = self._options.node_types[node_type]
            hosts = listing.hosts_of(self._options.owned_partition, shape, terms.constraint)
            for host in [node.host for node in hosts if node.host in loads][:count]:
                yield node_type, host

    def _held_gpus(self, host: str) -> int:
        """Return the GPUs of a node that nodes of ours hold."""
        return sum(
            self._options.type_and_gpus(node.pool)[1]
            for node in self._book.in_zone(host)
            if node.state not in (NodeState.WAITING, NodeState.ENDED)
        )
