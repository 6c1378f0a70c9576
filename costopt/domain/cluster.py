"""A cluster of owned or reserved nodes, and what each tenant of it has a right to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool


@dataclass(frozen=True, slots=True)
class Cluster:
    """``node_gpus`` holds the GPUs of each node; a slice is a part of one.

    ``usd_per_gpu_hour`` is the site's rate for GPUs that are held, 0 where it asks none. The watts
    are of one GPU with its share of the node, at the meter; None where unknown. ``partition_gpus``
    are the GPUs that tenants would have for themselves, by name; empty where the site says none.
    ``node_types`` are the instance types of the nodes, in their order; empty where they are only
    counted.
    """

    name: str
    node_gpus: tuple[int, ...]
    usd_per_gpu_hour: float = 0.0
    busy_w_per_gpu: float | None = None
    idle_w_per_gpu: float | None = None
    partition_gpus: Mapping[str, int] = field(default_factory=dict)
    node_types: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs of all nodes."""
        return sum(self.node_gpus)

    def kwh(self, busy_gpu_hours: float, idle_gpu_hours: float) -> float | None:
        """Return the energy of held and idle GPUs; None where the watts are unknown."""
        if self.busy_w_per_gpu is None or self.idle_w_per_gpu is None:
            return None
        return (self.busy_w_per_gpu * busy_gpu_hours + self.idle_w_per_gpu * idle_gpu_hours) / 1000


SLICE = ":"
"""Between the instance type of a node and the GPUs of a slice of it."""


def slice_type(node_type: str, gpus: int) -> str:
    """Return the name of the instance type that is ``gpus`` GPUs of a node: ``dgx:2``."""
    return f"{node_type}{SLICE}{gpus}"


def slice_sizes(node_gpus: int) -> tuple[int, ...]:
    """Return the GPUs of the slices of a node: the powers of two below all of it.

    Slices of these sizes leave no GPU that another of them could not use where the node's own
    number is a power of two, too.
    """
    return tuple(1 << power for power in range((node_gpus - 1).bit_length()))


def owned_pools(provider: str, cluster: Cluster) -> Iterator[tuple[Pool, int, int]]:
    """Yield the pools of a cluster's nodes, each with its GPUs and how many fit in the empty node.

    Each node is a zone, so that a pool says where on the cluster a gang is: the whole node, and
    each size of slice. The nodes are in the cluster's order.
    """
    pairs = zip(cluster.node_types, cluster.node_gpus, strict=True)
    for number, (node_type, node_gpus) in enumerate(pairs, start=1):
        sizes = {slice_type(node_type, gpus): gpus for gpus in slice_sizes(node_gpus)}
        for name, gpus in {node_type: node_gpus, **sizes}.items():
            zone = f"n{number:04d}"
            pool = Pool(provider, cluster.name, zone, name, CapacityType.RESERVED)
            yield pool, gpus, node_gpus // gpus


def with_clusters(market: MarketHistory, clusters: Mapping[str, Cluster]) -> MarketHistory:
    """Return the market with the nodes of these clusters, by provider, and all slices of them.

    Their capacity and rate never change.
    """
    owned = {
        pool: PoolHistory(
            pool,
            (MarketState(market.starts_at, count, cluster.usd_per_gpu_hour * gpus),),
            market.ends_at,
        )
        for provider, cluster in clusters.items()
        for pool, gpus, count in owned_pools(provider, cluster)
    }
    return replace(market, pools={**market.pools, **owned}) if owned else market
