"""The GPUs of owned nodes, which the whole node and every slice of it take from the same ones.

A slice is a pool of its own in the market: ``dgx:2`` beside ``dgx``, in the zone that is the node.
"""

from __future__ import annotations

from collections.abc import Callable

from costopt.domain.cluster import SLICE
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool

Place = tuple[str, str, str]


class NodeSlices:
    """Which pools of a market share a node, and how many GPUs each takes of it."""

    def __init__(self, market: MarketHistory) -> None:
        self._node_gpus: dict[Place, int] = {}
        self._gpus: dict[Pool, int] = {}
        self._sharing: dict[Place, list[Pool]] = {}
        reserved = [p for p in market.pools if p.capacity_type is CapacityType.RESERVED]
        for pool in reserved:
            _, separator, gpus = pool.instance_type.partition(SLICE)
            if separator:
                self._gpus[pool] = int(gpus)
                count = market.pools[pool].states[0].nodes_available or 0
                node_gpus = max(self._node_gpus.get(_place(pool), 0), int(gpus) * count)
                self._node_gpus[_place(pool)] = node_gpus
        for pool in reserved:
            place = _place(pool)
            if place in self._node_gpus:
                self._gpus.setdefault(pool, self._node_gpus[place])
                self._sharing.setdefault(place, []).append(pool)

    def __contains__(self, pool: Pool) -> bool:
        return pool in self._gpus

    def free(self, pool: Pool, running: Callable[[Pool], int]) -> int:
        """Return how many more of the pool fit in its node, beside all that runs there."""
        place = _place(pool)
        taken = sum(running(other) * self._gpus[other] for other in self._sharing[place])
        return max(0, self._node_gpus[place] - taken) // self._gpus[pool]


def _place(pool: Pool) -> Place:
    return pool.provider, pool.region, pool.zone
