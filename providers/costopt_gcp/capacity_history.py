"""What Spot machines cost and how many were preempted, by AdviceClient.capacity_history.

https://cloud.google.com/compute/docs/reference/rest/v1/advice/capacityHistory: prices of whole
machines in dollars per hour, and for each of the last 30 days the share of Spot VMs that stopped
that day because they were preempted. Machines with attached GPUs are not told of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.instance import time_of

USD = "USD"


@dataclass(frozen=True, slots=True)
class SpotPriceInterval:
    """From ``at`` until ``until`` a node costs this; None where it is not known, or goes on."""

    at: datetime
    until: datetime | None
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class DailyPreemptions:
    """Of the Spot VMs that stopped in the day from ``at`` on, the share that was preempted."""

    at: datetime
    share: float


class CapacityHistory:
    """The questions about one machine type. Raises ProviderError."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def prices(self, region: str, machine_type: str) -> tuple[SpotPriceInterval, ...]:
        """Spot prices of a region, ascending."""
        told = self._ask(region, f"regions/{region}", machine_type, "PRICE")
        prices = (_price(record) for record in told.price_history)
        return tuple(sorted(filter(None, prices), key=lambda price: price.at))

    def preemptions(
        self, region: str, zone: str, machine_type: str
    ) -> tuple[DailyPreemptions, ...]:
        """Days of a zone, ascending."""
        told = self._ask(region, f"zones/{zone}", machine_type, "PREEMPTION")
        days = (_day(record) for record in told.preemption_history)
        return tuple(sorted(filter(None, days), key=lambda day: day.at))

    def _ask(self, region: str, location: str, machine_type: str, kind: str) -> Any:
        project = self._clients.project
        with asking("compute.advice.capacityHistory", f"{location}: {machine_type}"):
            return self._clients.of("advice").capacity_history(
                project=project,
                region=region,
                capacity_history_request_resource={
                    "types": [kind],
                    "location_policy": {"location": f"projects/{project}/{location}"},
                    "instance_properties": {
                        "machine_type": machine_type,
                        "scheduling": {"provisioning_model": "SPOT"},
                    },
                },
                **self._clients.reading(),
            )


def _price(record: Any) -> SpotPriceInterval | None:
    at = time_of(record.interval.start_time)
    if at is None:
        return None
    return SpotPriceInterval(at, time_of(record.interval.end_time), usd_of(record.list_price))


def usd_of(money: Any) -> float | None:
    """Dollars of a Money; None where it is none, or in another currency."""
    usd = float(money.units) + money.nanos / 1e9
    known = money.currency_code == USD and math.isfinite(usd) and usd > 0
    return usd if known else None


def _day(record: Any) -> DailyPreemptions | None:
    at, share = time_of(record.interval.start_time), float(record.preemption_rate)
    told = "preemption_rate" in record and math.isfinite(share) and 0 <= share <= 1
    return DailyPreemptions(at, share) if told and at is not None else None
