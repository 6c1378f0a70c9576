"""Spot placement scores: how likely AWS says that a request for spot capacity is to succeed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

MIN_TYPES = 3
"""Named fewer types, AWS gives a low score whatever the capacity (EC2 User Guide)."""

MAX_SCORE = 10
HOUR_S = 3600.0
SCORE_MAX_AGE_S = 6 * HOUR_S


class PlacementScores:
    """Scores of zones for a group of types, asked for once an hour.

    AWS limits how many different questions an account may ask in 24 h, so that the same groups
    should be asked for again and again. Where a score cannot be had, it is unknown.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[
            tuple[str, tuple[str, ...], int], tuple[Mapping[str, int], datetime]
        ] = TtlCache(HOUR_S, SCORE_MAX_AGE_S)

    def scores(
        self, region: str, instance_types: Collection[str], nodes: int, now: datetime
    ) -> tuple[Mapping[str, int], datetime]:
        """Scores 1 to 10 by zone id for ``nodes`` of any of the types, and when they were asked.

        A zone among the region's lower ones may have none. Raises BadRequestError for fewer than
        three types, ProviderError.
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
        """What the scores say of the share of time with capacity, by zone id; empty if nothing.

        A prior: the tenth of the score, with an interval of ± 3 points, as wide as the scale
        allows. The weakness: AWS calls a score a recommendation and no guarantee, it is of the
        moment, and of the types together and not of each.
        """
        try:
            scores, asked_at = self.scores(region, instance_types, nodes, now)
        except ProviderError:
            return {}
        told = ", ".join(sorted(set(instance_types)))
        return {
            zone_id: Estimate(
                value=score / MAX_SCORE,
                low=max(score - 3, 0) / MAX_SCORE,
                high=min(score + 3, MAX_SCORE) / MAX_SCORE,
                basis=Basis.PRIOR,
                source=f"spot placement score {score} of {MAX_SCORE} for {nodes} of {told}",
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
