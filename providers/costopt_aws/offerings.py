"""Which instance types each zone has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from costopt_aws.clients import Clients
from costopt_aws.errors import asking
from costopt_aws.kept import Kept

HOURS_6_S = 6 * 3600.0


class Offerings:
    """DescribeInstanceTypeOfferings by zone id, four times a day for each region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: Kept[str, Mapping[str, frozenset[str]]] = Kept(HOURS_6_S, 7 * 86400.0)

    def zones(self, region: str, now: datetime) -> Mapping[str, frozenset[str]]:
        """The ids of the zones that have an instance type, by its name. Raises ProviderError."""
        return self._kept.get(region, now, lambda: self._ask(region))

    def _ask(self, region: str) -> Mapping[str, frozenset[str]]:
        with asking("ec2:DescribeInstanceTypeOfferings", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_instance_type_offerings")
                .paginate(LocationType="availability-zone-id")
            )
            items = [item for page in pages for item in page["InstanceTypeOfferings"]]
        zones: dict[str, set[str]] = {}
        for item in items:
            zones.setdefault(item["InstanceType"], set()).add(item["Location"])
        return {name: frozenset(ids) for name, ids in zones.items()}
