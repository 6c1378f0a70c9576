"""The power of nodes, and the carbon intensity of their electricity."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from costopt.domain.estimate import Basis


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A power limit of each GPU, and its effect on the node.

    ``speed`` is the share of the uncapped speed that remains; ``busy_w`` what the whole node draws
    while it trains, before PUE.
    """

    cap_w: float
    speed: float
    busy_w: float
    source: str


def communication_factor(communication_share: float, scaling_efficiency: float | None) -> float:
    """Return the share of its busy power that a node draws in a gang of this efficiency.

    1 − share · (1 − efficiency): for the part of the time that the strong-scaling efficiency, 0–1,
    says is lost, the node waits for the others. 1 where the efficiency is unknown.
    """
    if scaling_efficiency is None:
        return 1.0
    return 1.0 - communication_share * (1.0 - scaling_efficiency)


@dataclass(frozen=True, slots=True)
class NodePower:
    """Power of one node of a pool.

    ``idle_w`` is drawn while it starts and restores, ``busy_w`` while it trains; both at the
    node's plug, before ``pue``. ``relative_error`` is half the 90 % interval, as a share.
    ``gco2e_per_kwh`` is None where the region's carbon intensity is unknown. ``caps`` are the power
    limits that were measured on this GPU model, empty where there are no measurements.

    ``cpu_w`` and ``other_w`` are what the CPUs and the rest (memory) draw of ``busy_w`` while the
    node trains, None where the model does not say; ``overhead`` is what the plug draws over the sum
    of the parts: fans and conversion.

    ``communication_share`` is the share of ``busy_w`` that a node would not draw if it did nothing
    but wait for the other nodes of its gang.

    ``embodied_gco2e_per_hour`` is an hour's share of what making the machine emitted, None where it
    is unknown. It is not part of any other figure.
    """

    idle_w: float
    busy_w: float
    pue: float
    gco2e_per_kwh: float | None
    basis: Basis
    relative_error: float
    source: str
    caps: tuple[PowerCap, ...] = ()
    cpu_w: float | None = None
    other_w: float | None = None
    overhead: float = 1.0
    communication_share: float = 0.0
    embodied_gco2e_per_hour: float | None = None

    def plug_wh(self, metered_wh: float, parts: Collection[str], hours: float) -> float | None:
        """Return watt-hours at the plug, of which the meters of ``parts`` ("gpu", "cpu") read some.

        overhead × (metered + what no meter read, at its modelled power). None where the GPUs were
        not read, or the model does not say what the others draw. A meter of the whole "node" reads
        all of them.
        """
        if "node" in parts:
            return metered_wh
        if "gpu" not in parts or self.cpu_w is None or self.other_w is None:
            return None
        unread_w = self.other_w + (0.0 if "cpu" in parts else self.cpu_w)
        return self.overhead * (metered_wh + unread_w * hours)

    def in_gang(self, scaling_efficiency: float | None) -> NodePower:
        """Return the power of the node in a gang of this strong-scaling efficiency, 0–1."""
        factor = communication_factor(self.communication_share, scaling_efficiency)
        if factor == 1.0:
            return self
        caps = tuple(replace(cap, busy_w=cap.busy_w * factor) for cap in self.caps)
        return replace(self, busy_w=self.busy_w * factor, caps=caps, communication_share=0.0)

    def capped(self, cap_w: float | None) -> NodePower:
        """Return the node under its cap of these watts; unchanged without one."""
        busy_w = next((cap.busy_w for cap in self.caps if cap.cap_w == cap_w), self.busy_w)
        return self if busy_w == self.busy_w else replace(self, busy_w=busy_w, caps=())

    def measured(self, busy_w: float, source: str) -> NodePower:
        """Return this node with its measured draw in training; its caps change in proportion."""
        ratio = busy_w / self.busy_w
        return replace(
            self,
            idle_w=min(self.idle_w, busy_w),
            busy_w=busy_w,
            basis=Basis.MEASURED,
            source=source,
            caps=tuple(replace(cap, busy_w=cap.busy_w * ratio) for cap in self.caps),
        )

    def kwh(self, idle_s: float, busy_s: float) -> float:
        """Return the energy in kWh at the meter of the data center."""
        return (self.idle_w * idle_s + self.busy_w * busy_s) * self.pue / 3.6e6

    def gco2e(self, kwh: float) -> float | None:
        """Return the grams of ``kwh``, or None where the carbon intensity is unknown."""
        return None if self.gco2e_per_kwh is None else kwh * self.gco2e_per_kwh
