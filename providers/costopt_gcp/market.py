"""The market of Compute Engine: what is for rent, what it cost, what the project may have."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Estimate
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.quota import Quota
from costopt.provider.base import PriceChange, PriceSeriesKey
from costopt.provider.cache import fan_out_or_raise
from costopt_gcp.clients import Clients
from costopt_gcp.machine_types import MachineTypes
from costopt_gcp.market_options import MarketOptions
from costopt_gcp.offers import NAME, GceOffers, OfferScope
from costopt_gcp.prices import GcePrices
from costopt_gcp.quotas import AccountQuotas
from costopt_gcp.regions import Regions
from costopt_gcp.reservations import Reservations
from costopt_gcp.sku_prices import SkuPrices


class GcpMarket:
    """Offers, quotas and price history of the provider."""

    def __init__(self, clients: Clients, regions: tuple[str, ...], options: MarketOptions) -> None:
        self.regions = Regions(clients)
        types = MachineTypes(clients)
        skus = SkuPrices(clients, self.regions, types)
        self.prices = GcePrices(clients, skus, options.list_prices, options.spot_prices)
        self._named = regions
        scope = OfferScope(regions, options.instance_types, options.advised_nodes)
        self.reservations = Reservations(clients)
        self._offers = GceOffers(
            scope, clients, self.regions, types, self.prices, self.reservations
        )
        self._quotas = AccountQuotas(clients, self.regions)

    def offers(self, now: datetime) -> tuple[Offer, ...]:
        """Every pool of the regions. Raises ProviderError where no region answers."""
        return self._offers.now(now)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """The quotas of GPUs that can be asked for; raises where none can."""
        answers = fan_out_or_raise(self._named, lambda region: self._quotas.of(region, now))
        told = [answer for answer in answers.values() if not isinstance(answer, ProviderError)]
        regional = tuple(quota for quotas in told for quota in quotas)
        try:
            return (*regional, *self._quotas.everywhere(now))
        except ProviderError:
            return regional

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """The types of the region, whose prices hold in all its zones. Raises ProviderError."""
        sold = self._offers.sold(region, tuple(instance_types), now)
        return tuple(PriceSeriesKey(NAME, region, name) for name in sorted(sold) if "+" not in name)

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Google tells the prices of past months by region: each zone gets them.

        Raises ProviderError.
        """
        region, name = series.region, series.instance_type
        told = self.prices.history(region, name, until)
        before = [price for price in told if price.at <= since][-1:]
        within = [price for price in told if since < price.at < until]
        zones = self._offers.sold(region, (name,), until).get(name, [])
        return tuple(
            PriceChange(
                Pool(NAME, region, zone, name, CapacityType.SPOT), price.at, price.usd_per_hour
            )
            for zone in zones
            for price in (*before, *within)
        )

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        """The on-demand list price of one node."""
        return self.prices.on_demand(series.region, series.instance_type, now)[0]

    def price_now(self, pool: Pool, now: datetime) -> float | None:
        """What a node costs that is launched now; None where it is not known."""
        if pool.capacity_type is CapacityType.RESERVED:
            return 0.0
        told = {
            CapacityType.SPOT: self.prices.spot,
            CapacityType.ON_DEMAND: self.prices.on_demand,
            CapacityType.FLEX_START: self.prices.flex_start,
        }[pool.capacity_type]
        price = told(pool.region, pool.instance_type, now)[0]
        return None if price is None else price.value
