"""What nodes cost: told by Google where it tells, else by a dated list."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.kept import Kept
from costopt_gcp.capacity_history import CapacityHistory, SpotPrice
from costopt_gcp.clients import Clients
from costopt_gcp.shape import Shape

MINUTES_10_S = 600.0
USABLE_S = 2 * 3600.0

ListPrices = Callable[[str, str, str], Estimate | None]
"""A dated list of (provider, region, instance type), such as the catalogue's."""


class Prices:
    """``on_demand`` and ``spot`` are the dated lists; Google's own tools tell no list price."""

    def __init__(
        self, clients: Clients, on_demand: ListPrices | None, spot: ListPrices | None
    ) -> None:
        self._history = CapacityHistory(clients)
        self._on_demand = on_demand
        self._dated_spot = spot
        self._kept: Kept[tuple[str, str], tuple[tuple[SpotPrice, ...], datetime]] = Kept(
            MINUTES_10_S, USABLE_S
        )

    def history(self, region: str, instance_type: str, now: datetime) -> tuple[SpotPrice, ...]:
        """Past and present spot prices, ascending. Raises ProviderError."""
        return self._told(region, instance_type, now)[0]

    def spot(self, region: str, instance_type: str, now: datetime) -> tuple[Estimate | None, str]:
        """The spot price in force, and why it is not known ("" where it is)."""
        try:
            told, seen_at = self._told(region, instance_type, now)
        except ProviderError as error:
            dated = self._dated(self._dated_spot, region, instance_type)
            return dated, "" if dated else error.message
        price = in_force(told, seen_at)
        if price is None or price.usd_per_hour is None:
            dated = self._dated(self._dated_spot, region, instance_type)
            return dated, "" if dated else "Google tells no spot price of this type there"
        source = f"Google Cloud spot price, unchanged since {price.at:%Y-%m-%d %H:%M}Z"
        return Estimate.exact(price.usd_per_hour, Basis.MEASURED, source, seen_at), ""

    def on_demand(self, region: str, instance_type: str) -> tuple[Estimate | None, str]:
        """The list price, and why it is not known ("" where it is)."""
        price = self._dated(self._on_demand, region, instance_type)
        return price, "" if price else "the catalogue holds no list price of this type there"

    def _told(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[tuple[SpotPrice, ...], datetime]:
        shape = Shape.parse(instance_type)
        if shape.accelerator is not None:
            raise BadRequestError(
                f"{region}: Google tells no spot price of machines with attached GPUs "
                f"({instance_type})"
            )
        return self._kept.get(
            (region, instance_type),
            now,
            lambda: (self._history.prices(region, shape.machine_type), now),
        )

    def _dated(self, prices: ListPrices | None, region: str, instance_type: str) -> Estimate | None:
        return None if prices is None else prices("gcp", region, instance_type)


def in_force(prices: tuple[SpotPrice, ...], at: datetime) -> SpotPrice | None:
    """The price at ``at``; the last one goes on for a day after the end of its interval."""
    begun = [price for price in prices if price.at <= at]
    if not begun:
        return None
    price = begun[-1]
    over = price.until is not None and at >= price.until + timedelta(days=1)
    return None if over else price
