"""The offers of Compute Engine, from the several APIs in which Google publishes their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, Offer, Pool
from costopt.provider.cache import TtlCache, fan_out
from costopt.provider.regions import OfferScope
from costopt_gcp.capacity import (
    CapacityAdvice,
    CapacityEstimate,
    CapacityHistory,
    DailyPreemptions,
    hazard_from_shares,
)
from costopt_gcp.clients import Clients
from costopt_gcp.machine_types import MachineShape, MachineTypes, ZoneInfo, family
from costopt_gcp.prices import GcePrices
from costopt_gcp.quotas import Regions
from costopt_gcp.reservations import Reservations

NAME = "gcp"
DAY_S = 86400.0
NEVER_TAKEN = Estimate.exact(0.0, Basis.LISTED, "flex-start nodes run uninterrupted to their end")
FLEX_START_SERIES = frozenset({"a2", "a3", "a4", "g2"})
"""https://docs.cloud.google.com/compute/docs/instances/about-flex-start-vms: all of the
accelerator-optimized family but A4X and G4."""


class GceOffers:
    """The offers of a scope.

    Unavailable data of a region becomes an offer without a price that names the reason, as does a
    type that the region does not sell. The other regions are not affected.
    """

    def __init__(
        self,
        scope: OfferScope,
        clients: Clients,
        regions: Regions,
        types: MachineTypes,
        prices: GcePrices,
        reservations: Reservations,
    ) -> None:
        self._scope = scope
        self._regions = regions
        self._types = types
        self._prices = prices
        self._reservations = reservations
        self._history = CapacityHistory(clients)
        self._advice = CapacityAdvice(clients, scope.rated_nodes)
        self._preempted: TtlCache[tuple[str, str], tuple[DailyPreemptions, ...]] = TtlCache(
            DAY_S, 7 * DAY_S
        )

    def now(self, now: datetime) -> tuple[Offer, ...]:
        """Return one offer for each zone, type and capacity type of the scope.

        Raise ProviderError if no region answers.
        """
        return self._scope.offers(lambda region: self._region(region, now))

    def sold(
        self, region: str, patterns: tuple[str, ...], now: datetime
    ) -> Mapping[str, list[str]]:
        """Return, by instance type, the zones of the region that have it. Raise ProviderError."""
        zones = self._regions.facts(region, now).zones
        facts: dict[str, ZoneInfo] = {zone: self._types.of(zone, now) for zone in zones}
        found: dict[str, list[str]] = {}
        for zone in zones:
            for name in facts[zone].matching(patterns):
                found.setdefault(name, []).append(zone)
        return found

    def _region(self, region: str, now: datetime) -> tuple[Offer, ...]:
        sold = self.sold(region, self._scope.instance_types, now)
        return (
            *self._spot_offers(region, sold, now),
            *self._on_demand_offers(region, sold, now),
            *self._flex_start_offers(region, sold, now),
            *self._reserved_offers(region, sold, now),
            *self._scope.not_sold(region, sold),
        )

    def _spot_offers(
        self, region: str, sold: Mapping[str, list[str]], now: datetime
    ) -> Iterator[Offer]:
        prices = fan_out(sold, lambda name: self._prices.spot(region, name, now))
        pools = [(name, zone) for name, zones in sold.items() for zone in zones]
        hazards = fan_out(pools, lambda pool: self._hazard(region, pool[1], pool[0], now))
        advised = fan_out(pools, lambda pool: self._advice.of(region, pool[1], pool[0], now))
        for name, zone in pools:
            quoted = prices[name]
            price, why_not = (None, quoted.message) if isinstance(quoted, ProviderError) else quoted
            hazard, said = hazards[name, zone], advised[name, zone]
            advice = CapacityEstimate() if isinstance(said, ProviderError) else said
            if hazard is None or isinstance(hazard, ProviderError):
                hazard = advice.hazard_per_hour
            yield Offer(
                pool=Pool(NAME, region, zone, name, CapacityType.SPOT),
                price_usd_per_hour=price,
                hazard_per_hour=hazard,
                nodes_available=None,
                availability=advice.availability,
                unknown_because=why_not,
            )

    def _hazard(self, region: str, zone: str, instance_type: str, now: datetime) -> Estimate | None:
        shape = MachineShape.parse(instance_type)
        if shape.accelerator is not None:
            return None
        days = self._preempted.get(
            (zone, instance_type),
            now,
            lambda: self._history.preemptions(region, zone, shape.machine_type),
        )
        return hazard_from_shares(days, now)

    def _on_demand_offers(
        self, region: str, sold: Mapping[str, list[str]], now: datetime
    ) -> Iterator[Offer]:
        for name, zones in sold.items():
            price, why_not = self._prices.on_demand(region, name, now)
            for zone in zones:
                yield Offer(
                    pool=Pool(NAME, region, zone, name, CapacityType.ON_DEMAND),
                    price_usd_per_hour=price,
                    hazard_per_hour=ON_DEMAND_HAZARD,
                    nodes_available=None,
                    unknown_because=why_not,
                )

    def _flex_start_offers(
        self, region: str, sold: Mapping[str, list[str]], now: datetime
    ) -> Iterator[Offer]:
        """Return offers of one node: Google starts those of a gang independently of each other.

        The provider knows its nodes, and so until when a pool may be used.
        """
        for name in (name for name in sold if family(name) in FLEX_START_SERIES):
            price, why_not = self._prices.flex_start(region, name, now)
            for zone in sold[name]:
                yield Offer(
                    pool=Pool(NAME, region, zone, name, CapacityType.FLEX_START),
                    price_usd_per_hour=price,
                    hazard_per_hour=NEVER_TAKEN,
                    nodes_available=1,
                    unknown_because=why_not,
                )

    def _reserved_offers(
        self, region: str, sold: Mapping[str, list[str]], now: datetime
    ) -> tuple[Offer, ...]:
        """Return the reserved offers, () if they cannot be listed: few projects have any."""
        try:
            return self._reservations.offers(region, sold.keys(), now)
        except ProviderError:
            return ()
