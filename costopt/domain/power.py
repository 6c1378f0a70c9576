"""What a node draws, and how clean the power is where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.estimate import Basis


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A power limit of each GPU, and what the node does under it.

    ``speed`` is the share of the uncapped speed that is kept; ``busy_w`` what the whole node draws
    while it trains, before PUE.
    """

    cap_w: float
    speed: float
    busy_w: float
    source: str


@dataclass(frozen=True, slots=True)
class NodePower:
    """Power of one node of a pool.

    ``idle_w`` is drawn while it starts and restores, ``busy_w`` while it trains; both at the
    node's plug, before ``pue``. ``relative_error`` is half the 90 % interval, as a share.
    ``gco2e_per_kwh`` is None where the region's carbon intensity is unknown. ``caps`` are the power
    limits that were measured on this GPU model; none where nobody did.
    """

    idle_w: float
    busy_w: float
    pue: float
    gco2e_per_kwh: float | None
    basis: Basis
    relative_error: float
    source: str
    caps: tuple[PowerCap, ...] = ()

    def kwh(self, idle_s: float, busy_s: float) -> float:
        """Energy at the meter of the data centre."""
        return (self.idle_w * idle_s + self.busy_w * busy_s) * self.pue / 3.6e6

    def gco2e(self, kwh: float) -> float | None:
        """Emissions of ``kwh``, or None where the carbon intensity is unknown."""
        return None if self.gco2e_per_kwh is None else kwh * self.gco2e_per_kwh
