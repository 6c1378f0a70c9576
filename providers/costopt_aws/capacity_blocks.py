"""Capacity Blocks: GPU nodes for a stretch of days, paid for when they are booked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.kept import Kept
from costopt.domain.market import CapacityType, Offer, Pool
from costopt_aws.clients import Clients
from costopt_aws.errors import asking
from costopt_aws.zones import Zones

MINUTES_5_S = 300.0
USABLE_S = 3600.0
HELD = ("active", "scheduled")
NEVER_INTERRUPTED = Estimate.exact(0.0, Basis.LISTED, "a Capacity Block is held until its end")


class CapacityBlocks:
    """Blocks that the account has booked."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._clients = clients
        self._zones = zones
        self._kept: Kept[str, tuple[Mapping[str, Any], ...]] = Kept(MINUTES_5_S, USABLE_S)

    def booked(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Offer, ...]:
        """A reserved offer for each pool with a block that has not ended; the earliest where many.

        It costs nothing more: the whole block was paid for in advance. Raises ProviderError.
        """
        offers: dict[Pool, Offer] = {}
        for block in self._held(region, now):
            if block["InstanceType"] not in instance_types or block["EndDate"] <= now:
                continue
            pool = self._pool(region, block)
            if pool is not None and pool not in offers:
                offers[pool] = _booked_offer(pool, block, now)
        return tuple(offers.values())

    def reservation_id(self, pool: Pool, now: datetime) -> str | None:
        """The booked block that a launch in ``pool`` must name. Raises ProviderError."""
        for block in self._held(pool.region, now):
            if block["EndDate"] > now and self._pool(pool.region, block) == pool:
                return str(block["CapacityReservationId"])
        return None

    def _held(self, region: str, now: datetime) -> tuple[Mapping[str, Any], ...]:
        return self._kept.get(region, now, lambda: self._ask(region))

    def _ask(self, region: str) -> tuple[Mapping[str, Any], ...]:
        with asking("ec2:DescribeCapacityReservations", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_capacity_reservations")
                .paginate(Filters=[{"Name": "state", "Values": list(HELD)}])
            )
            items = [item for page in pages for item in page["CapacityReservations"]]
        blocks = [
            item
            for item in items
            if item.get("ReservationType") == "capacity-block"
            and item.get("State") in HELD
            and item.get("EndDate") is not None
        ]
        return tuple(sorted(blocks, key=_begin))

    def _pool(self, region: str, item: Mapping[str, Any]) -> Pool | None:
        zone_id = item.get("AvailabilityZoneId")
        if zone_id is None:
            zone_id = self._zones.ids(region).get(item.get("AvailabilityZone", ""))
        if zone_id is None:
            return None
        return Pool("aws", region, zone_id, item["InstanceType"], CapacityType.RESERVED)


def _begin(item: Mapping[str, Any]) -> datetime:
    begin: datetime = item.get("StartDate") or item["CreateDate"]
    return begin


def _booked_offer(pool: Pool, block: Mapping[str, Any], now: datetime) -> Offer:
    begins_at = _begin(block).astimezone(UTC)
    free = block["AvailableInstanceCount"] if begins_at <= now else block["TotalInstanceCount"]
    return Offer(
        pool=pool,
        price_usd_per_hour=Estimate.exact(
            0.0, Basis.LISTED, f"{block['CapacityReservationId']}: paid for in advance", now
        ),
        hazard_per_hour=NEVER_INTERRUPTED,
        nodes_available=int(free),
        from_at=begins_at,
        until_at=block["EndDate"].astimezone(UTC),
    )
