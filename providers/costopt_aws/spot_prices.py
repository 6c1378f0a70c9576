"""Spot prices, present and past, by zone id."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors
from costopt_aws.regions import Zones

PRODUCT = "Linux/UNIX"
HISTORY_DAYS = 90
"""How far back spot prices are available (EC2 User Guide, "View Spot Instance pricing history")."""

MAX_TYPES = 100
PAGE = 1000


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """The price of a node since ``at``; None if the reported figure is not a price."""

    zone_id: str
    instance_type: str
    at: datetime
    usd_per_hour: float | None


class SpotPrices:
    """DescribeSpotPriceHistory for Linux. Calls raise ProviderError."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._clients = clients
        self._zones = zones

    def current(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> Mapping[tuple[str, str], SpotPrice]:
        """Return the prices in force at ``now`` by (zone id, instance type)."""
        newest: dict[tuple[str, str], SpotPrice] = {}
        for price in self._ask(region, sorted(instance_types), now, None):
            key = price.zone_id, price.instance_type
            if key not in newest or newest[key].at < price.at:
                newest[key] = price
        return newest

    def history(
        self, region: str, instance_type: str, since: datetime, until: datetime
    ) -> tuple[SpotPrice, ...]:
        """Return changes before ``until`` by zone and time; a zone's first may precede ``since``.

        AWS returns the last change before the window along with those in it.
        """
        found = {
            (price.zone_id, price.at): price
            for price in self._ask(region, [instance_type], since, until)
            if price.at < until
        }
        return tuple(found[key] for key in sorted(found))

    def _ask(
        self, region: str, instance_types: list[str], since: datetime, until: datetime | None
    ) -> Iterator[SpotPrice]:
        if not instance_types:
            return
        ids = self._zones.ids(region)
        client = self._clients.reading("ec2", region)
        for first in range(0, len(instance_types), MAX_TYPES):
            some = instance_types[first : first + MAX_TYPES]
            with map_errors("ec2:DescribeSpotPriceHistory", region):
                pages = client.get_paginator("describe_spot_price_history").paginate(
                    InstanceTypes=some,
                    ProductDescriptions=[PRODUCT],
                    StartTime=since,
                    PaginationConfig={"PageSize": PAGE},
                    **({} if until is None else {"EndTime": until}),
                )
                items = [item for page in pages for item in page["SpotPriceHistory"]]
                prices = [_price(item, ids) for item in items]
            yield from filter(None, prices)


def _price(item: Mapping[str, Any], ids: Mapping[str, str]) -> SpotPrice | None:
    """Return the price; None without a time or in a zone not of the account (a Local Zone)."""
    zone_id = ids.get(item.get("AvailabilityZone", "")) or item.get("AvailabilityZoneId")
    at = item.get("Timestamp")
    if zone_id is None or zone_id not in ids.values() or at is None:
        return None
    usd = _usd(item.get("SpotPrice", ""))
    return SpotPrice(zone_id, item["InstanceType"], at.astimezone(UTC), usd)


def _usd(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
