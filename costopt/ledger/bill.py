"""Running totals of dollars, energy and carbon over nodes, in whole numbers so that sums agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from costopt.domain.market import CapacityType
from costopt.ledger.carbon import Emission
from costopt.ledger.node import NodeAccount


@dataclass(slots=True)
class CostTotals:
    """Sums over nodes: micro-dollars, micro-watt-hours, emissions, milliseconds.

    ``measured_uwh`` of the energy was measured, the rest modelled. The energy of ``unpowered_ms``
    of the nodes' time is unknown and not in any of the sums.
    """

    usd_micros: int = 0
    spot_usd_micros: int = 0
    on_demand_usd_micros: int = 0
    idle_uwh: int = 0
    busy_uwh: int = 0
    emitted: Emission = field(default_factory=Emission)
    node_ms: int = 0
    measured_uwh: int = 0
    unpowered_ms: int = 0

    @property
    def idle_wh(self) -> float | None:
        """Watt-hours drawn while not training, None where any node's are unknown."""
        return None if self.unpowered_ms else self.idle_uwh / 1e6

    @property
    def busy_wh(self) -> float | None:
        """Watt-hours drawn while training, None where any node's are unknown."""
        return None if self.unpowered_ms else self.busy_uwh / 1e6

    @property
    def wh(self) -> float | None:
        """Watt-hours of all, None where any node's are unknown."""
        return None if self.unpowered_ms else (self.idle_uwh + self.busy_uwh) / 1e6

    @property
    def gco2e(self) -> float | None:
        """Grams emitted, None where any energy or the intensity of any is unknown."""
        unknown = self.unpowered_ms or self.emitted.unknown_uwh
        return None if unknown else self.emitted.ugco2e / 1e6

    def copy(self) -> CostTotals:
        """The same sums, to be carried on apart."""
        return CostTotals(
            self.usd_micros,
            self.spot_usd_micros,
            self.on_demand_usd_micros,
            self.idle_uwh,
            self.busy_uwh,
            self.emitted,
            self.node_ms,
            self.measured_uwh,
            self.unpowered_ms,
        )

    def add(self, node: NodeAccount, now_ms: int) -> None:
        """Charge a node until its end, or until now while it lives."""
        self._count(node, node.until_ms(now_ms), 1)

    @contextmanager
    def recounting(self, node: NodeAccount) -> Iterator[None]:
        """Within, more becomes known of a node that has ended and was added before."""
        end_ms = node.until_ms(node.launched_ms)
        self._count(node, end_ms, -1)
        try:
            yield
        finally:
            self._count(node, end_ms, 1)

    def _count(self, node: NodeAccount, until_ms: int, times: int) -> None:
        usd_micros = times * node.usd_micros(until_ms)
        idle_uwh, busy_uwh = node.uwh(until_ms)
        self.usd_micros += usd_micros
        if node.capacity_type is CapacityType.SPOT:
            self.spot_usd_micros += usd_micros
        elif node.capacity_type is CapacityType.ON_DEMAND:
            self.on_demand_usd_micros += usd_micros
        self.idle_uwh += times * idle_uwh
        self.busy_uwh += times * busy_uwh
        self.emitted = self.emitted.plus(node.emitted(until_ms), times)
        self.node_ms += times * (until_ms - node.launched_ms)
        self.measured_uwh += times * node.measured_uwh(until_ms)
        self.unpowered_ms += times * node.unpowered_ms(until_ms)
