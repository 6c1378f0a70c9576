"""What nodes cost: told by Google where it tells, else by the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType
from costopt.provider.cache import TtlCache
from costopt_gcp.capacity_history import CapacityHistory, SpotPriceInterval
from costopt_gcp.clients import Clients
from costopt_gcp.shape import MachineShape
from costopt_gcp.sku_prices import SkuPrices

MINUTES_10_S = 600.0
USABLE_S = 2 * 3600.0

NOT_ON_DEMAND = (
    "a3-highgpu-1g",
    "a3-highgpu-2g",
    "a3-highgpu-4g",
    "a3-ultragpu-*",
    "a4-*",
    "a4x-*",
)
"""What Google rents as Spot, by reservation or Flex-start alone, though Cloud Billing lists prices
(cloud.google.com/compute/docs/accelerator-optimized-machines, "Consumption option availability by
machine type"; as read in github.com/dstackai/gpuhunt/pull/176)."""

ListPrices = Callable[[str, str, str], Estimate | None]
"""A dated list of (provider, region, instance type), such as the catalogue's."""


class GcePrices:
    """``on_demand`` and ``spot`` are the dated lists, for what Google does not tell."""

    def __init__(
        self,
        clients: Clients,
        skus: SkuPrices,
        on_demand: ListPrices | None,
        spot: ListPrices | None,
    ) -> None:
        self._skus = skus
        self._history = CapacityHistory(clients)
        self._on_demand = on_demand
        self._dated_spot = spot
        self._kept: TtlCache[tuple[str, str], tuple[tuple[SpotPriceInterval, ...], datetime]] = (
            TtlCache(MINUTES_10_S, USABLE_S)
        )

    def history(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[SpotPriceInterval, ...]:
        """Past and present spot prices, ascending. Raises ProviderError."""
        return self._told(region, instance_type, now)[0]

    def spot(self, region: str, instance_type: str, now: datetime) -> tuple[Estimate | None, str]:
        """The spot price in force, and why it is not known ("" where it is)."""
        try:
            told, seen_at = self._told(region, instance_type, now)
        except ProviderError as error:
            why_not = error.message
        else:
            price = in_force(told, seen_at)
            if price is not None and price.usd_per_hour is not None:
                source = f"Google Cloud spot price, unchanged since {price.at:%Y-%m-%d %H:%M}Z"
                return Estimate.exact(price.usd_per_hour, Basis.MEASURED, source, seen_at), ""
            why_not = "Google tells no spot price of this type there"
        listed, why_unlisted = self._listed(region, instance_type, CapacityType.SPOT, now)
        return listed, "" if listed else f"{why_not}; {why_unlisted}"

    def on_demand(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[Estimate | None, str]:
        """The list price, and why there is none ("" where there is)."""
        if any(fnmatchcase(instance_type, pattern) for pattern in NOT_ON_DEMAND):
            return None, f"Google does not rent {instance_type} on demand"
        return self._listed(region, instance_type, CapacityType.ON_DEMAND, now)

    def flex_start(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[Estimate | None, str]:
        """The list price by Cloud Billing alone, and why there is none ("" where there is)."""
        return self._skus.node(region, instance_type, CapacityType.FLEX_START, now)

    def _listed(
        self, region: str, instance_type: str, terms: CapacityType, now: datetime
    ) -> tuple[Estimate | None, str]:
        """By Cloud Billing, else by the dated list."""
        price, why_not = self._skus.node(region, instance_type, terms, now)
        dated = self._dated_spot if terms is CapacityType.SPOT else self._on_demand
        if price is None and dated is not None:
            price = dated("gcp", region, instance_type)
        return price, "" if price else f"{why_not}; the catalogue holds none"

    def _told(
        self, region: str, instance_type: str, now: datetime
    ) -> tuple[tuple[SpotPriceInterval, ...], datetime]:
        shape = MachineShape.parse(instance_type)
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


def in_force(prices: tuple[SpotPriceInterval, ...], at: datetime) -> SpotPriceInterval | None:
    """The price at ``at``; the last one goes on for a day after the end of its interval."""
    begun = [price for price in prices if price.at <= at]
    if not begun:
        return None
    price = begun[-1]
    over = price.until is not None and at >= price.until + timedelta(days=1)
    return None if over else price
