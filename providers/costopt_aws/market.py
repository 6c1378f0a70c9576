"""The market of EC2: offers, price history, the account's quotas, and prices at a launch."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from costopt.domain.account import Quota
from costopt.domain.estimate import Estimate
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.provider.base import PriceChange, PriceSeriesKey, Provider
from costopt.provider.cache import fan_out_or_raise, split_answers
from costopt.provider.regions import OfferScope
from costopt_aws.capacity import CapacityBlocks, PlacementScores, SpotAdvisor
from costopt_aws.clients import Clients
from costopt_aws.instance_types import InstanceTypes, Offerings
from costopt_aws.offers import NAME, Ec2Offers, OfferSources
from costopt_aws.options import AwsOptions
from costopt_aws.prices import OnDemandPrices, PriceFile, PricingApi
from costopt_aws.quotas import AccountQuotas
from costopt_aws.regions import Regions, Zones
from costopt_aws.spot_prices import HISTORY_DAYS, SpotPrices


class AwsMarket(Provider):
    """The half of the provider that launches nothing: offers, quotas and price history."""

    def __init__(self, clients: Clients, options: AwsOptions) -> None:
        self.zones = Zones(clients)
        self.blocks = CapacityBlocks(clients, self.zones)
        self._sources = OfferSources(
            regions=Regions(clients),
            types=InstanceTypes(clients),
            offerings=Offerings(clients),
            spot=SpotPrices(clients, self.zones),
            on_demand=OnDemandPrices(
                PricingApi(clients),
                PriceFile(options.price_file_url, options.cache_folder),
                options.list_prices,
            ),
            advisor=SpotAdvisor(options.advisor_url),
            scores=PlacementScores(clients),
            blocks=self.blocks,
        )
        self.scope = OfferScope(NAME, options.regions, options.instance_types, options.scored_nodes)
        self._offers = Ec2Offers(self.scope, self._sources)
        self._quotas = AccountQuotas(clients)

    def offers(self, now: datetime) -> tuple[Offer, ...]:
        """Return an offer for every pool of the regions; incomplete offers name the reason.

        Raise ProviderError if no region answers.
        """
        return self._offers.list_offers(now)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """Return the vCPU quotas of all regions that answer. Raise ProviderError if none does."""
        results = fan_out_or_raise(self.scope.regions, lambda region: self._quotas.of(region, now))
        known, _ = split_answers(results)
        return tuple(quota for quotas in known.values() for quota in quotas)

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """Return the types of the region that are sold on spot. Raise ProviderError."""
        self._sources.regions.check(region, now, through=self.scope.regions)
        types = self._sources.types.matching(region, tuple(instance_types), now)
        zones = self._sources.offerings.zones(region, types.keys(), now)
        return tuple(
            PriceSeriesKey(NAME, region, name)
            for name in sorted(types)
            if CapacityType.SPOT in types[name].terms and zones.get(name)
        )

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Return the spot price changes; AWS keeps 90 days. Raise ProviderError."""
        since = max(since, until - timedelta(days=HISTORY_DAYS))
        prices = self._sources.spot.history(series.region, series.instance_type, since, until)
        return tuple(
            PriceChange(
                Pool(NAME, series.region, price.zone_id, price.instance_type, CapacityType.SPOT),
                price.at,
                price.usd_per_hour,
            )
            for price in prices
        )

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """Return the on-demand list price of one node."""
        prices, _ = self._sources.on_demand.prices(series.region, [series.instance_type], now)
        return prices.get(series.instance_type)


class LaunchPrice:
    """The price of a launch at its time, to be compared with the price that was planned."""

    def __init__(self, clients: Clients, market: AwsMarket) -> None:
        self._market = market
        self._spot = SpotPrices(clients, market.zones)

    def __call__(self, pool: Pool, now: datetime) -> float | None:
        """Return dollars per node-hour, None if AWS reports no price. Raise ProviderError."""
        match pool.capacity_type:
            case CapacityType.SPOT:
                return self._spot_price(pool, now)
            case CapacityType.RESERVED:
                return 0.0
            case CapacityType.ON_DEMAND:
                series = PriceSeriesKey(pool.provider, pool.region, pool.instance_type)
                listed = self._market.list_price(series, now)
                return None if listed is None else listed.value
            case CapacityType.FLEX_START:
                return None

    def _spot_price(self, pool: Pool, now: datetime) -> float | None:
        prices = self._spot.current(pool.region, [pool.instance_type], now)
        zone_id = self._market.zones.ids(pool.region).get(pool.zone, pool.zone)
        price = prices.get((zone_id, pool.instance_type))
        return None if price is None else price.usd_per_hour
