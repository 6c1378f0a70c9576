"""The room on the nodes that an account owns, as their providers report it at an instant."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import Launch
from costopt.domain.market import Pool
from costopt.engine.settings import World


class OwnedRoom:
    """GPUs that are free on each node; launches take them one after the other.

    A provider that does not answer has none; where it does not say how many, there is room.
    """

    def __init__(self, world: World, providers: Collection[str], now: datetime) -> None:
        self._machines = world.machines
        self._free: dict[tuple[str, str, str], float] = {}
        for provider in world.providers:
            if provider.names.isdisjoint(providers):
                continue
            try:
                offers = provider.offers(now)
            except ProviderError:
                continue
            for offer in offers:
                if offer.pool.provider in providers:
                    count = offer.nodes_available
                    gpus = math.inf if count is None else count * self._gpus(offer.pool)
                    node = _node(offer.pool)
                    self._free[node] = max(gpus, self._free.get(node, 0))

    def take(self, launch: Launch) -> bool:
        """Take the GPUs of a launch; False, and nothing is taken, where there are too few."""
        node, gpus = _node(launch.pool), launch.nodes * self._gpus(launch.pool)
        if not 0 < gpus <= self._free.get(node, 0):
            return False
        self._free[node] -= gpus
        return True

    def _gpus(self, pool: Pool) -> int:
        machine = self._machines.instance_type(pool)
        return 0 if machine is None else machine.gpu_count


def _node(pool: Pool) -> tuple[str, str, str]:
    return pool.provider, pool.region, pool.zone
