"""What a node costs at its launch, asked for then and there."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.market import CapacityType, Pool
from costopt.provider.base import PriceSeriesKey
from costopt_aws.clients import Clients
from costopt_aws.market import AwsMarket
from costopt_aws.spot_prices import SpotPrices


class LaunchPrice:
    """The price that a launch comes out at, which the one it was planned with is held against."""

    def __init__(self, clients: Clients, market: AwsMarket) -> None:
        self._market = market
        self._spot = SpotPrices(clients, market.zones)

    def __call__(self, pool: Pool, now: datetime) -> float | None:
        """Dollars per node-hour; None where AWS does not tell. Raises ProviderError."""
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
        told = prices.get((zone_id, pool.instance_type))
        return None if told is None else told.usd_per_hour
