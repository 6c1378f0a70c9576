"""What nodes draw at the meter once they train."""

from __future__ import annotations

import math
from collections.abc import Iterable

from costopt.domain.fleet import Launch, Node
from costopt.domain.market import Pool
from costopt.domain.ports import PowerModel
from costopt.engine.journal import Journal


class PowerDraw:
    """Kilowatts of the nodes that run and of those to be launched."""

    def __init__(self, journal: Journal, powers: PowerModel) -> None:
        self._journal = journal
        self._powers = powers

    def kw(self, launch: Launch, nodes: Iterable[Node]) -> float:
        """What these nodes and the launched ones draw together.

        The launching job's nodes count under the cap that it will ask of them all, the others under
        the limit that they keep now; a node whose power is unknown draws without end.
        """
        total = launch.nodes * self.node_kw(launch.pool, launch.power_cap_w)
        for node in nodes:
            cap_w = launch.power_cap_w
            if node.job != launch.job:
                limit = self._journal.records[node.job].power_limits.get(node.node_id)
                cap_w = None if limit is None else limit.cap_w
            total += self.node_kw(node.pool, cap_w)
        return total

    def node_kw(self, pool: Pool, cap_w: float | None) -> float:
        """What one node draws at the meter under this cap; without end where it is unknown."""
        power = self._powers.node_power(pool)
        if power is None:
            return math.inf
        capped = (cap.busy_w for cap in power.caps if cap.cap_w == cap_w)
        return next(capped, power.busy_w) * power.pue / 1000
