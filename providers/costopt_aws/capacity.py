"""What AWS publishes about capacity: Capacity Blocks, spot placement scores, the Spot Advisor.

- Capacity Blocks: GPU nodes for a number of days, paid for when they are booked.
- Spot placement scores: AWS's estimate of how likely a request for spot capacity succeeds.
- The Spot Advisor: how often AWS interrupts spot nodes, by region and instance type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from costopt.domain.errors import BadRequestError, ProviderError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.hazards import (
    InterruptionBuckets,
    hazard_from_interruption_bucket,
    parse_spot_advisor,
)
from costopt.domain.market import (
    CapacityType,
    Offer,
    Pool,
    Reservation,
    reservation_offers,
    select_reservation,
)
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients, open_url
from costopt_aws.errors import map_errors
from costopt_aws.regions import Zones

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
    """The blocks that the account has booked."""

    def __init__(self, clients: Clients, zones: Zones) -> None:
        self._clients = clients
        self._zones = zones
        self._kept: TtlCache[str, tuple[Mapping[str, Any], ...]] = TtlCache(MINUTES_5_S, USABLE_S)

    def reservations(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[Offer, ...]:
        """Return a reserved offer for each pool of the region with a block of these types.

        Raise ProviderError.
        """
        items = self._kept.get(region, now, lambda: self._ask(region))
        wanted = [item for item in items if item["InstanceType"] in instance_types]
        return reservation_offers(self._read(region, wanted), now)

    def of(self, pool: Pool, nodes: int, now: datetime) -> Reservation | None:
        """Return the block that a launch of so many nodes must name, None if no block has room.

        Each call asks AWS, because launches use up a block. Raise ProviderError.
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
        """Return the blocks whose zone is known; all nodes of a future block are free."""
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
        zone_id: str | None = item.get("AvailabilityZoneId")
        return zone_id or self._zones.ids(region).get(item.get("AvailabilityZone", ""))


MIN_TYPES = 3
"""For fewer types AWS returns a low score whatever the capacity (EC2 User Guide)."""

MAX_SCORE = 10
HOUR_S = 3600.0
SCORE_MAX_AGE_S = 6 * HOUR_S


class PlacementScores:
    """Scores of zones for a group of types, fetched once an hour.

    AWS limits how many different requests an account may make in 24 h, so callers should repeat
    the same groups. An unavailable score is unknown.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[
            tuple[str, tuple[str, ...], int], tuple[Mapping[str, int], datetime]
        ] = TtlCache(HOUR_S, SCORE_MAX_AGE_S)

    def scores(
        self, region: str, instance_types: Collection[str], nodes: int, now: datetime
    ) -> tuple[Mapping[str, int], datetime]:
        """Return scores 1 to 10 by zone id for ``nodes`` of any of the types, and their time.

        One of the region's lower zones may have none. Raise BadRequestError for fewer than three
        types, ProviderError.
        """
        names = tuple(sorted(set(instance_types)))
        if len(names) < MIN_TYPES:
            raise BadRequestError(
                f"{region}: a spot placement score of {', '.join(names) or 'no type'} says nothing",
                hint="name three types or more, among which AWS may choose",
            )
        return self._kept.get(
            (region, names, nodes), now, lambda: (self._ask(region, names, nodes), now)
        )

    def availability(
        self, region: str, instance_types: Collection[str], nodes: int, now: datetime
    ) -> Mapping[str, Estimate]:
        """Return the share of time with capacity by zone id, as the scores suggest; {} if unknown.

        A prior: a tenth of the score, with an interval of ± 3 points, as wide as the scale
        allows. Its weakness: AWS calls a score a recommendation without guarantee, and it holds
        for the moment and for the types together, not for each of them.
        """
        try:
            scores, asked_at = self.scores(region, instance_types, nodes, now)
        except ProviderError:
            return {}
        type_names = ", ".join(sorted(set(instance_types)))
        return {
            zone_id: Estimate(
                value=score / MAX_SCORE,
                low=max(score - 3, 0) / MAX_SCORE,
                high=min(score + 3, MAX_SCORE) / MAX_SCORE,
                basis=Basis.PRIOR,
                source=f"spot placement score {score} of {MAX_SCORE} for {nodes} of {type_names}",
                observed_at=asked_at,
            )
            for zone_id, score in scores.items()
        }

    def _ask(self, region: str, names: tuple[str, ...], nodes: int) -> Mapping[str, int]:
        with map_errors("ec2:GetSpotPlacementScores", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("get_spot_placement_scores")
                .paginate(
                    InstanceTypes=list(names),
                    TargetCapacity=nodes,
                    TargetCapacityUnitType="units",
                    SingleAvailabilityZone=True,
                    RegionNames=[region],
                )
            )
            items = [item for page in pages for item in page["SpotPlacementScores"]]
            return {
                item["AvailabilityZoneId"]: int(item["Score"])
                for item in items
                if item.get("AvailabilityZoneId") and 1 <= int(item["Score"]) <= MAX_SCORE
            }


ADVISOR_URL = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
REFRESH_S = 12 * 3600.0
MAX_BYTES = 64 * 2**20


class SpotAdvisor:
    """The published buckets, fetched twice a day; none while they are unavailable."""

    def __init__(self, url: str = ADVISOR_URL) -> None:
        self._url = url
        self._kept: TtlCache[None, tuple[InterruptionBuckets, datetime]] = TtlCache(
            REFRESH_S, 30 * 86400.0
        )

    def hazard_per_hour(self, region: str, instance_type: str, now: datetime) -> Estimate | None:
        """Return a prior of interruptions per node-hour (``costopt.domain.hazards``), or None."""
        try:
            buckets, asked_at = self._kept.get(None, now, lambda: (self._fetch(), now))
        except ProviderError:
            return None
        bucket = buckets.get((region, instance_type))
        return None if bucket is None else hazard_from_interruption_bucket(bucket, asked_at)

    def _fetch(self) -> InterruptionBuckets:
        with open_url(self._url) as stream:
            body = stream.read(MAX_BYTES)
        try:
            return parse_spot_advisor(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProviderUnavailableError(
                f"{self._url}: this is not the Spot Advisor's data: {type(error).__name__}: {error}"
            ) from error
