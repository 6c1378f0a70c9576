"""The market of Compute Engine: offers, price history, the project's quotas, prices at a launch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from costopt.domain.account import Quota
from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Estimate
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.provider.base import PriceChange, PriceSeriesKey, Provider
from costopt.provider.cache import fan_out_or_raise, split_answers
from costopt.provider.regions import OfferScope
from costopt_gcp.clients import Clients
from costopt_gcp.machine_types import MachineTypes
from costopt_gcp.offers import NAME, GceOffers
from costopt_gcp.options import GcpOptions
from costopt_gcp.prices import GcePrices, SkuPrices
from costopt_gcp.quotas import AccountQuotas, Regions
from costopt_gcp.reservations import Reservations


class GcpMarket(Provider):
    """The half of the provider that launches nothing: offers, quotas and price history."""

    def __init__(self, clients: Clients, options: GcpOptions) -> None:
        self.regions = Regions(clients)
        types = MachineTypes(clients)
        skus = SkuPrices(clients, self.regions, types)
        self.prices = GcePrices(clients, skus, options.list_prices, options.spot_prices)
        self.scope = OfferScope(
            NAME, options.regions, options.instance_types, options.advised_nodes
        )
        self.reservations = Reservations(clients)
        self._offers = GceOffers(
            self.scope, clients, self.regions, types, self.prices, self.reservations
        )
        self._quotas = AccountQuotas(clients, self.regions)

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return offers for all pools of the regions. Raise ProviderError if none answers."""
        return self._offers.now(now)

    def quotas(self, now: datetime) -> tuple[Quota, ...]:
        """Return the GPU quotas of all regions that answer. Raise ProviderError if none does."""
        results = fan_out_or_raise(self.scope.regions, lambda region: self._quotas.of(region, now))
        known, _ = split_answers(results)
        regional = tuple(quota for quotas in known.values() for quota in quotas)
        try:
            return (*regional, *self._quotas.everywhere(now))
        except ProviderError:
            return regional

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        """Return the region's types; prices hold in all its zones. Raise ProviderError."""
        sold = self._offers.sold(region, tuple(instance_types), now)
        return tuple(PriceSeriesKey(NAME, region, name) for name in sorted(sold) if "+" not in name)

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        """Return prices of past months; Google publishes them by region, so each zone gets them.

        Raise ProviderError.
        """
        region, name = series.region, series.instance_type
        history = self.prices.history(region, name, until)
        before = [price for price in history if price.at <= since][-1:]
        within = [price for price in history if since < price.at < until]
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
        """Return the price of a node launched now; None if unknown."""
        if pool.capacity_type is CapacityType.RESERVED:
            return 0.0
        lookup = {
            CapacityType.SPOT: self.prices.spot,
            CapacityType.ON_DEMAND: self.prices.on_demand,
            CapacityType.FLEX_START: self.prices.flex_start,
        }[pool.capacity_type]
        price = lookup(pool.region, pool.instance_type, now)[0]
        return None if price is None else price.value
