"""Capacity Blocks: GPU nodes for a stretch of days, paid for when they are booked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.reservation import Reservation, reservation_offers, select_reservation
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors
from costopt_aws.zones import Zones

MINUTES_5_S = 300.0
USABLE_S = 3600.0
ACTIVE = "active"
HELD = (ACTIVE, "scheduled")
CLEANUP_LEAD = timedelta(minutes=30)
"""How long before a block's end EC2 begins to terminate its instances.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html: the warning comes
forty minutes before the end, and ten minutes before that.
"""


class CapacityBlocks:
    """Blocks that the account has booked."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._clients = clients
        self._zones = zones
        self._kept: TtlCache[str, tuple[Mapping[str, Any], ...]] = TtlCache(MINUTES_5_S, USABLE_S)

    def reservations(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Offer, ...]:
        """A reserved offer for each pool of the region with a block of these types.

        Raises ProviderError.
        """
        items = self._kept.get(region, now, lambda: self._ask(region))
        wanted = [item for item in items if item["InstanceType"] in instance_types]
        return reservation_offers(self._read(region, wanted), now)

    def of(self, pool: Pool, nodes: int, now: datetime) -> Reservation | None:
        """The block that a launch of so many nodes must name. Asked anew, as a launch takes of it.

        Raises ProviderError.
        """
        held = self._read(pool.region, self._ask(pool.region))
        return select_reservation(held, pool, nodes, now)

    def _ask(self, region: str) -> tuple[Mapping[str, Any], ...]:
        with map_errors("ec2:DescribeCapacityReservations", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_capacity_reservations")
                .paginate(Filters=[{"Name": "state", "Values": list(HELD)}])
            )
            items = [item for page in pages for item in page["CapacityReservations"]]
        return tuple(
            item
            for item in items
            if item.get("ReservationType") == "capacity-block"
            and item.get("State") in HELD
            and item.get("EndDate") is not None
        )

    def _read(self, region: str, items: Iterable[Mapping[str, Any]]) -> Iterator[Reservation]:
        """Those whose zone is known. A block that is yet to begin has all its nodes free."""
        for item in items:
            zone_id = self._zone_id(region, item)
            if zone_id is None:
                continue
            active = item["State"] == ACTIVE
            total, free = item["TotalInstanceCount"], item["AvailableInstanceCount"]
            yield Reservation(
                name=str(item["CapacityReservationId"]),
                pool=Pool("aws", region, zone_id, item["InstanceType"], CapacityType.RESERVED),
                nodes=int(free if active else total),
                used=active and free < total,
                from_at=(item.get("StartDate") or item["CreateDate"]).astimezone(UTC),
                until_at=item["EndDate"].astimezone(UTC) - CLEANUP_LEAD,
                bound=True,
                made=active,
            )

    def _zone_id(self, region: str, item: Mapping[str, Any]) -> str | None:
        told: str | None = item.get("AvailabilityZoneId")
        return told or self._zones.ids(region).get(item.get("AvailabilityZone", ""))
