"""Which instance types each zone has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

HOURS_6_S = 6 * 3600.0
MAX_NAMES = 200
"""Values that a filter of EC2 takes at most."""


class Offerings:
    """DescribeInstanceTypeOfferings by zone id, four times a day for each region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[tuple[str, tuple[str, ...]], Mapping[str, frozenset[str]]] = TtlCache(
            HOURS_6_S, 7 * 86400.0
        )

    def zones(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> Mapping[str, frozenset[str]]:
        """The ids of the zones that have an instance type, by its name; none where no zone has.

        Raises ProviderError.
        """
        names = tuple(sorted(instance_types))
        return self._kept.get((region, names), now, lambda: self._ask(region, names))

    def _ask(self, region: str, names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
        paginator = self._clients.reading("ec2", region).get_paginator(
            "describe_instance_type_offerings"
        )
        zones: dict[str, set[str]] = {}
        for first in range(0, len(names), MAX_NAMES):
            some = list(names[first : first + MAX_NAMES])
            with map_errors("ec2:DescribeInstanceTypeOfferings", region):
                pages = paginator.paginate(
                    LocationType="availability-zone-id",
                    Filters=[{"Name": "instance-type", "Values": some}],
                )
                items = [item for page in pages for item in page["InstanceTypeOfferings"]]
                for item in items:
                    zones.setdefault(item["InstanceType"], set()).add(item["Location"])
        return {name: frozenset(ids) for name, ids in zones.items()}
