"""Instance types as EC2 describes them, and which of them each zone has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from costopt.domain.market import CapacityType
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

DAY_S = 86400.0
GPU_FAMILIES = ("g*", "p*")
"""Every family of EC2 with NVIDIA GPUs begins with one of these letters."""

_USAGE = {
    "spot": CapacityType.SPOT,
    "on-demand": CapacityType.ON_DEMAND,
    "capacity-block": CapacityType.RESERVED,
}


@dataclass(frozen=True, slots=True)
class InstanceTypeInfo:
    """``gpus`` is a fraction if a GPU is shared; ``efa_interfaces`` is 0 without the Elastic Fabric
    Adapter."""

    name: str
    terms: frozenset[CapacityType]
    gpus: float
    efa_interfaces: int

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> InstanceTypeInfo:
        """Return the type of an entry of DescribeInstanceTypes."""
        gpu = next(iter(item.get("GpuInfo", {}).get("Gpus", ())), None)
        network = item.get("NetworkInfo", {})
        usage = item.get("SupportedUsageClasses", ())
        return cls(
            name=item["InstanceType"],
            terms=frozenset(_USAGE[word] for word in usage if word in _USAGE),
            gpus=0.0 if gpu is None else _count(gpu),
            efa_interfaces=int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        )


class InstanceTypes:
    """DescribeInstanceTypes, once a day for each region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[tuple[str, tuple[str, ...]], Mapping[str, InstanceTypeInfo]] = (
            TtlCache(DAY_S, 30 * DAY_S)
        )

    def matching(
        self, region: str, patterns: Sequence[str], now: datetime
    ) -> Mapping[str, InstanceTypeInfo]:
        """Return the region's types that match any pattern, by name; without one, all with GPUs.

        Raise ProviderError.
        """
        wanted = tuple(patterns) or GPU_FAMILIES
        found = self._kept.get((region, wanted), now, lambda: self._ask(region, wanted))
        return found if patterns else {n: facts for n, facts in found.items() if facts.gpus > 0}

    def _ask(self, region: str, patterns: tuple[str, ...]) -> Mapping[str, InstanceTypeInfo]:
        with map_errors("ec2:DescribeInstanceTypes", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_instance_types")
                .paginate(Filters=[{"Name": "instance-type", "Values": list(patterns)}])
            )
            items = [item for page in pages for item in page["InstanceTypes"]]
            facts = (InstanceTypeInfo.read(item) for item in items)
            return {each.name: each for each in facts if _matches(each.name, patterns)}


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _count(gpu: Mapping[str, Any]) -> float:
    """Return the number of GPUs; EC2 counts a shared one as 0, with the instance's part of it."""
    whole = float(gpu.get("Count", 0))
    if whole > 0:
        return whole
    return float(gpu.get("GpuPartitionSize", 0.0)) * float(gpu.get("LogicalGpuCount", 1))


HOURS_6_S = 6 * 3600.0
MAX_NAMES = 200
"""EC2's limit on the values of a filter."""


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
        """Return the ids of the zones that have an instance type, by its name; () if none has.

        Raise ProviderError.
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
