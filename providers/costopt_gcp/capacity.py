"""Google's capacity advice and preemption history, and priors of hazards from them.

Capacity advice: how likely spot capacity is available now by Google, and how long it lasts.

https://cloud.google.com/compute/docs/reference/rest/v1/advice/capacity: the likelihood of getting
so many VMs, from 0 to 1, and the time that most of them would run before they are preempted.
There is no advice for machines with attached GPUs.

Capacity history: prices of Spot machines and how many were preempted.

https://cloud.google.com/compute/docs/reference/rest/v1/advice/capacityHistory: prices of whole
machines in dollars per hour, and for each of the last 30 days the share of Spot VMs that stopped
that day because they were preempted. Machines with attached GPUs are missing. The share of stopped
VMs is converted to a prior of interruptions per node-hour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache
from costopt.provider.tags import time_of
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.machine_types import MachineShape

HOUR_S = 3600.0
USABLE_S = 6 * HOUR_S
SPREAD = 0.3
"""Half of the interval of a likelihood: Google gives none, so this is ours."""
FACTOR = 4.0
"""The interval of a hazard, as a factor up and down; ours as well."""


@dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """Google's estimates for a pool; None: unknown."""

    availability: Estimate | None = None
    hazard_per_hour: Estimate | None = None


class CapacityAdvice:
    """Fetched once an hour by zone and type. ``nodes``: for how many, None for no advice."""

    def __init__(self, clients: Clients, nodes: int | None) -> None:
        self._clients = clients
        self._nodes = nodes
        self._kept: TtlCache[tuple[str, str], CapacityEstimate] = TtlCache(HOUR_S, USABLE_S)

    def of(self, region: str, zone: str, instance_type: str, now: datetime) -> CapacityEstimate:
        """Return Google's estimates for the pool. Raise ProviderError."""
        shape, nodes = MachineShape.parse(instance_type), self._nodes
        if nodes is None or shape.accelerator is not None:
            return CapacityEstimate()

        def ask() -> CapacityEstimate:
            return read_advice(self._ask(region, zone, shape.machine_type, nodes), nodes, now)

        return self._kept.get((zone, instance_type), now, ask)

    def _ask(self, region: str, zone: str, machine_type: str, nodes: int) -> Sequence[Any]:
        project = self._clients.project
        asked = {
            "size": nodes,
            "distribution_policy": {
                "zones": [{"zone": f"projects/{project}/zones/{zone}"}],
                "target_shape": "ANY_SINGLE_ZONE",
            },
            "instance_properties": {"scheduling": {"provisioning_model": "SPOT"}},
            "instance_flexibility_policy": {
                "instance_selections": {machine_type: {"machine_types": [machine_type]}}
            },
        }
        with asking("compute.advice.capacity", f"{zone}: {machine_type}"):
            response = self._clients.of("advice").capacity(
                project=project,
                region=region,
                capacity_advice_request_resource=asked,
                **self._clients.reading(),
            )
        return [each.scores for each in response.recommendations]


def read_advice(scores: Sequence[Any], nodes: int, now: datetime) -> CapacityEstimate:
    """Return priors, from the first of the scores.

    "Most" is assumed to be half: where half of the VMs outlive t, their hazard is ln 2 / t.
    """
    if not scores:
        return CapacityEstimate()
    likely, uptime_s = float(scores[0].obtainability), _seconds(scores[0].estimated_uptime)
    availability = hazard = None
    if "obtainability" in scores[0] and 0 <= likely <= 1:
        source = f"Google Cloud: {nodes} available with a likelihood of {likely:.0%}"
        low, high = max(likely - SPREAD, 0.0), min(likely + SPREAD, 1.0)
        availability = Estimate(likely, low, high, Basis.PRIOR, source, now)
    if uptime_s is not None:
        per_hour = math.log(2) * HOUR_S / uptime_s
        source = f"Google Cloud: most run {uptime_s / HOUR_S:.1f} h before they are preempted"
        hazard = Estimate(per_hour, per_hour / FACTOR, per_hour * FACTOR, Basis.PRIOR, source, now)
    return CapacityEstimate(availability, hazard)


def _seconds(text: str) -> float | None:
    """Return the seconds of a duration ("3600s")."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


USD = "USD"


@dataclass(frozen=True, slots=True)
class SpotPriceInterval:
    """A node's price from ``at`` until ``until``; None: unknown, or still in force."""

    at: datetime
    until: datetime | None
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class DailyPreemptions:
    """Of the Spot VMs that stopped in the day from ``at`` on, the share that was preempted."""

    at: datetime
    share: float


class CapacityHistory:
    """The history of one machine type. Calls raise ProviderError."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def prices(self, region: str, machine_type: str) -> tuple[SpotPriceInterval, ...]:
        """Return spot prices of a region, ascending."""
        response = self._ask(region, f"regions/{region}", machine_type, "PRICE")
        prices = (_price(record) for record in response.price_history)
        return tuple(sorted(filter(None, prices), key=lambda price: price.at))

    def preemptions(
        self, region: str, zone: str, machine_type: str
    ) -> tuple[DailyPreemptions, ...]:
        """Return the days of a zone, ascending."""
        response = self._ask(region, f"zones/{zone}", machine_type, "PREEMPTION")
        days = (_day(record) for record in response.preemption_history)
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
    """Return the dollars of a Money; None if it is not one, or in another currency."""
    usd = float(money.units) + money.nanos / 1e9
    known = money.currency_code == USD and math.isfinite(usd) and usd > 0
    return usd if known else None


def _day(record: Any) -> DailyPreemptions | None:
    at, share = time_of(record.interval.start_time), float(record.preemption_rate)
    valid = "preemption_rate" in record and math.isfinite(share) and 0 <= share <= 1
    return DailyPreemptions(at, share) if valid and at is not None else None


MIN_LIFETIME_H = 2.0
MAX_LIFETIME_H = 168.0
"""How long Spot VMs run until they stop for whatever reason: Google does not say. From jobs of a
couple of hours to services that run for a week; widened by us, not published."""

TYPICAL_STAY_H = math.sqrt(MIN_LIFETIME_H * MAX_LIFETIME_H)


def hazard_from_shares(days: Sequence[DailyPreemptions], now: datetime) -> Estimate | None:
    """Return interruptions per node-hour: a prior with a wide interval; None without any day.

    The share is preempted ÷ stopped, whatever the reason of the stop, so it is not a hazard: it
    does not include how long the VMs ran. With competing risks the hazard of preemption is the
    share times the hazard of any stop, h = share ÷ mean stay. The stay is unknown, so the interval
    takes the lowest tenth of the days with the longest stay and the highest tenth with the
    shortest; the value takes the mean share and the geometric mean of the stays, 18 h. Where every
    share is 0, the high end is that of one preemption more than was seen, 1 ÷ (days + 1). What we
    see of our own nodes says more than this prior soon.
    """
    if not days:
        return None
    shares = sorted(day.share for day in days)
    tenth = len(shares) // 10
    low, high = shares[tenth], max(shares[-1 - tenth], 1 / (len(shares) + 1))
    mean = math.fsum(shares) / len(shares)
    return Estimate(
        value=mean / TYPICAL_STAY_H,
        low=min(low, mean) / MAX_LIFETIME_H,
        high=max(high, mean) / MIN_LIFETIME_H,
        basis=Basis.PRIOR,
        source=f"Google Cloud: {mean:.0%} of stopped Spot VMs were preempted, {len(days)} days",
        observed_at=now,
    )
