"""The offers of EC2, from the several APIs and files in which AWS publishes their parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import ON_DEMAND_HAZARD, CapacityType, Offer, Pool
from costopt.provider.cache import TtlCache
from costopt.provider.regions import OfferScope
from costopt_aws.capacity import MIN_TYPES, CapacityBlocks, PlacementScores, SpotAdvisor
from costopt_aws.instance_types import InstanceTypeInfo, InstanceTypes, Offerings
from costopt_aws.prices import OnDemandPrices
from costopt_aws.regions import Regions
from costopt_aws.spot_prices import SpotPrice, SpotPrices

NAME = "aws"
MINUTES_5_S = 300.0


@dataclass(frozen=True, slots=True)
class OfferSources:
    """The sources from which offers are built."""

    regions: Regions
    types: InstanceTypes
    offerings: Offerings
    spot: SpotPrices
    on_demand: OnDemandPrices
    advisor: SpotAdvisor
    scores: PlacementScores
    blocks: CapacityBlocks


class Ec2Offers:
    """The offers of a scope. Ticks make one call for spot prices per region every five minutes.

    Unavailable data becomes an offer without a price that names the reason: a region that is
    disabled or down, a missing permission, a type that is not sold, an unpublished price. The
    other regions are not affected.
    """

    def __init__(self, scope: OfferScope, sources: OfferSources) -> None:
        self._scope = scope
        self._from = sources
        self._spot: TtlCache[str, tuple[Mapping[tuple[str, str], SpotPrice], datetime]] = TtlCache(
            MINUTES_5_S, 2 * 3600.0
        )

    def list_offers(self, now: datetime) -> tuple[Offer, ...]:
        """Return one offer for each zone, type and capacity type of the scope.

        Raise ProviderError if no region answers.
        """
        return self._scope.offers(lambda region: self._region(region, now))

    def _region(self, region: str, now: datetime) -> tuple[Offer, ...]:
        self._from.regions.check(region, now, through=self._scope.regions)
        types = self._from.types.matching(region, self._scope.instance_types, now)
        zones = self._from.offerings.zones(region, types.keys(), now)
        sold = {name: facts for name, facts in types.items() if zones.get(name)}
        return (
            *self._spot_offers(region, sold, zones, now),
            *self._on_demand_offers(region, sold, zones, now),
            *self._reserved_offers(region, sold, now),
            *self._scope.not_sold(region, sold),
        )

    def _spot_offers(
        self,
        region: str,
        types: Mapping[str, InstanceTypeInfo],
        zones: Mapping[str, frozenset[str]],
        now: datetime,
    ) -> Iterator[Offer]:
        names = [n for n, facts in types.items() if CapacityType.SPOT in facts.terms]
        prices, seen_at, why_not = self._spot_prices(region, names, now)
        likely = self._availability(region, names, now)
        for name in names:
            hazard = self._from.advisor.hazard_per_hour(region, name, now)
            for zone_id in sorted(zones[name]):
                price = _estimate(prices.get((zone_id, name)), seen_at)
                yield Offer(
                    pool=Pool(NAME, region, zone_id, name, CapacityType.SPOT),
                    price_usd_per_hour=price,
                    hazard_per_hour=hazard,
                    nodes_available=None,
                    availability=likely.get((zone_id, _family(name))),
                    unknown_because="" if price else why_not,
                )

    def _spot_prices(
        self, region: str, names: Sequence[str], now: datetime
    ) -> tuple[Mapping[tuple[str, str], SpotPrice], datetime, str]:
        try:
            prices, seen_at = self._spot.get(
                region, now, lambda: (self._from.spot.current(region, names, now), now)
            )
        except ProviderError as error:
            return {}, now, error.message
        return prices, seen_at, "AWS publishes no spot price of this type in this zone"

    def _availability(
        self, region: str, names: Iterable[str], now: datetime
    ) -> Mapping[tuple[str, str], Estimate]:
        """Return availability by (zone id, family): a score is for several types together."""
        if self._scope.rated_nodes is None:
            return {}
        families: dict[str, list[str]] = {}
        for name in names:
            families.setdefault(_family(name), []).append(name)
        return {
            (zone_id, family): likely
            for family, members in families.items()
            if len(members) >= MIN_TYPES
            for zone_id, likely in self._from.scores.availability(
                region, members, self._scope.rated_nodes, now
            ).items()
        }

    def _on_demand_offers(
        self,
        region: str,
        types: Mapping[str, InstanceTypeInfo],
        zones: Mapping[str, frozenset[str]],
        now: datetime,
    ) -> Iterator[Offer]:
        names = [n for n, facts in types.items() if CapacityType.ON_DEMAND in facts.terms]
        prices, why_not = self._from.on_demand.prices(region, names, now)
        for name in names:
            price = prices.get(name)
            for zone_id in sorted(zones[name]):
                yield Offer(
                    pool=Pool(NAME, region, zone_id, name, CapacityType.ON_DEMAND),
                    price_usd_per_hour=price,
                    hazard_per_hour=ON_DEMAND_HAZARD,
                    nodes_available=None,
                    unknown_because="" if price else why_not,
                )

    def _reserved_offers(
        self, region: str, types: Mapping[str, InstanceTypeInfo], now: datetime
    ) -> tuple[Offer, ...]:
        """Return the reserved offers, () if they cannot be listed: few accounts have any."""
        try:
            return self._from.blocks.reservations(region, types.keys(), now)
        except ProviderError:
            return ()


def _estimate(price: SpotPrice | None, seen_at: datetime) -> Estimate | None:
    """Return the price as observed: its age is that of the answer, not of its last change."""
    if price is None or price.usd_per_hour is None:
        return None
    source = f"EC2 spot price, unchanged since {price.at:%Y-%m-%d %H:%M}Z"
    return Estimate.exact(price.usd_per_hour, Basis.MEASURED, source, seen_at)


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0]
