"""Running totals of dollars, energy and carbon over nodes, in whole numbers so that sums agree."""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.domain.events import NodeBilled
from costopt.domain.market import CapacityType
from costopt.ledger.carbon import Emission
from costopt.ledger.node import NodeAccount


@dataclass(slots=True)
class Bill:
    """Sums over nodes: micro-dollars, micro-watt-hours, emissions, milliseconds.

    ``measured_uwh`` of the energy was measured, the rest modelled.
    """

    usd_micros: int = 0
    spot_usd_micros: int = 0
    on_demand_usd_micros: int = 0
    idle_uwh: int = 0
    busy_uwh: int = 0
    emitted: Emission = field(default_factory=Emission)
    node_ms: int = 0
    measured_uwh: int = 0

    @property
    def gco2e(self) -> float | None:
        """Grams emitted, None where the intensity of any energy is unknown."""
        return None if self.emitted.unknown_uwh else self.emitted.ugco2e / 1e6

    def copy(self) -> Bill:
        """The same sums, to be carried on apart."""
        return Bill(
            self.usd_micros,
            self.spot_usd_micros,
            self.on_demand_usd_micros,
            self.idle_uwh,
            self.busy_uwh,
            self.emitted,
            self.node_ms,
            self.measured_uwh,
        )

    def settle(self, node: NodeAccount, billed: NodeBilled) -> None:
        """Charge a node that has ended, and was added before, as its provider does."""
        end_ms = node.until_ms(node.launched_ms)
        reckoned_micros = node.usd_micros(end_ms)
        node.settle(billed)
        self._charge(node, node.usd_micros(end_ms) - reckoned_micros)

    def add(self, node: NodeAccount, now_ms: int) -> None:
        """Charge a node until its end, or until now while it lives."""
        until_ms = node.until_ms(now_ms)
        idle_uwh, busy_uwh = node.uwh(until_ms)
        self._charge(node, node.usd_micros(until_ms))
        self.idle_uwh += idle_uwh
        self.busy_uwh += busy_uwh
        self.emitted = self.emitted.plus(node.emitted(until_ms))
        self.node_ms += until_ms - node.launched_ms
        self.measured_uwh += node.measured_uwh(until_ms)

    def _charge(self, node: NodeAccount, usd_micros: int) -> None:
        self.usd_micros += usd_micros
        if node.capacity_type is CapacityType.SPOT:
            self.spot_usd_micros += usd_micros
        elif node.capacity_type is CapacityType.ON_DEMAND:
            self.on_demand_usd_micros += usd_micros
