"""Owned nodes as part of a market that is played: capacity and rate never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costopt.domain.cluster import Cluster, owned_pools
from costopt.domain.history import MarketHistory, MarketState, PoolHistory


def with_clusters(market: MarketHistory, clusters: Mapping[str, Cluster]) -> MarketHistory:
    """Return the market with the nodes of these clusters, by provider, and all slices of them."""
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
