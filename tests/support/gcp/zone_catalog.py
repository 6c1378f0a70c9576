"""What the test cloud sells where, at what price, and what the project may have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.support.gcp.responses import Call, RefusedError, Reply, missing
from tests.support.gcp.zone_operations import API

TYPES: Mapping[str, tuple[int, int, str, int]] = {
    "g2-standard-4": (4, 16, "nvidia-l4", 1),
    "g2-standard-48": (48, 192, "nvidia-l4", 4),
    "a2-highgpu-1g": (12, 85, "nvidia-tesla-a100", 1),
    "n1-standard-8": (8, 30, "", 0),
}
"""vCPUs, GiB, GPU and how many of it."""


class Place:
    """Regions with zones; every zone has all of TYPES, and T4s to attach."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new."""
        self.regions: dict[str, list[str]] = {}
        self.spot: dict[tuple[str, str], list[tuple[datetime, datetime | None, float]]] = {}
        self.shares: dict[tuple[str, str], list[float]] = {}
        self.advised: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.advised_sizes: set[int] = set()
        self.limits: dict[str, float] = {"NVIDIA_L4_GPUS": 8, "PREEMPTIBLE_NVIDIA_L4_GPUS": 16}
        self.project_limits: dict[str, float] = {"GPUS_ALL_REGIONS": 32}
        self.missing_types: set[tuple[str, str]] = set()

    def region(self, call: Call) -> Reply:
        """regions.get."""
        name = call.names["region"]
        if name not in self.regions:
            raise missing("regions", name)
        zones = [f"{API}/projects/p/zones/{zone}" for zone in self.regions[name]]
        return Reply({"name": name, "zones": zones, "quotas": _quotas(self.limits)})

    def project(self, call: Call) -> Reply:
        """projects.get."""
        return Reply({"name": "p", "quotas": _quotas(self.project_limits)})

    def machine_types(self, call: Call) -> list[Mapping[str, Any]]:
        """machineTypes.list."""
        zone = call.names["zone"]
        return [
            _machine(name, facts)
            for name, facts in TYPES.items()
            if (zone, name) not in self.missing_types
        ]

    def accelerator_types(self, call: Call) -> list[Mapping[str, Any]]:
        """acceleratorTypes.list."""
        return [{"name": "nvidia-tesla-t4", "maximumCardsPerInstance": 4}]

    def image(self, call: Call) -> Reply:
        """images.get and images.getFromFamily."""
        asked = call.names["image"]
        if "missing" in asked:
            raise missing("images", asked)
        return Reply({"name": f"{asked.rpartition('/')[2]}-v1", "diskSizeGb": "50"})

    def capacity(self, call: Call) -> Reply:
        """advice.capacity of one zone and type."""
        (where,) = call.content["distributionPolicy"]["zones"]
        zone = where["zone"].rpartition("/")[2]
        ((selected),) = call.content["instanceFlexibilityPolicy"]["instanceSelections"].values()
        (machine_type,) = selected["machineTypes"]
        self.advised_sizes.add(int(call.content["size"]))
        scores = self.advised.get((zone, machine_type))
        if scores is None:
            return Reply({})
        shard = {"zone": f"{API}/projects/p/zones/{zone}", "machineType": machine_type}
        shard |= {"instanceCount": call.content["size"], "provisioningModel": "SPOT"}
        return Reply({"recommendations": [{"scores": scores, "shards": [shard]}]})

    def capacity_history(self, call: Call) -> Reply:
        """advice.capacityHistory of prices by region, or of preemptions by zone."""
        where = call.content["locationPolicy"]["location"].rpartition("/")[2]
        asked = call.content["instanceProperties"]
        if asked.get("guestAccelerators") or asked["machineType"] not in TYPES:
            raise RefusedError(400, "invalid", f"Machine type {asked['machineType']} was not found")
        reported: dict[str, Any] = {"location": where, "machineType": asked["machineType"]}
        key = where, asked["machineType"]
        if "PRICE" in call.content["types"]:
            reported["priceHistory"] = [_price(*each) for each in self.spot.get(key, [])]
        if "PREEMPTION" in call.content["types"]:
            begin = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
            reported["preemptionHistory"] = [
                {
                    "interval": {
                        "startTime": (begin + timedelta(days=day)).isoformat(),
                        "endTime": (begin + timedelta(days=day + 1)).isoformat(),
                    },
                    "preemptionRate": share,
                }
                for day, share in enumerate(self.shares.get(key, []))
            ]
        return Reply(reported)


def _price(begin: datetime, end: datetime | None, usd: float) -> Mapping[str, Any]:
    interval = {"startTime": begin.isoformat()}
    if end is not None:
        interval["endTime"] = end.isoformat()
    units = int(usd)
    money = {"currencyCode": "USD", "units": str(units), "nanos": round((usd - units) * 1e9)}
    return {"interval": interval, "listPrice": money}


def _quotas(limits: Mapping[str, float]) -> list[Mapping[str, Any]]:
    return [{"metric": metric, "limit": limit, "usage": 0} for metric, limit in limits.items()]


def _machine(name: str, facts: tuple[int, int, str, int]) -> Mapping[str, Any]:
    vcpus, gib, gpu, count = facts
    reported: dict[str, Any] = {"name": name, "guestCpus": vcpus, "memoryMb": gib * 1024}
    if gpu:
        reported["accelerators"] = [{"guestAcceleratorType": gpu, "guestAcceleratorCount": count}]
    return reported
