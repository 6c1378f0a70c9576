"""How likely Google says that spot capacity is to be had now, and how long it lasts.

https://cloud.google.com/compute/docs/reference/rest/v1/advice/capacity: the likelihood of getting
so many VMs, from 0 to 1, and the time that most of them would run before they are preempted.
Machines with attached GPUs are not asked about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costopt.domain.estimate import Basis, Estimate
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.shape import MachineShape

HOUR_S = 3600.0
USABLE_S = 6 * HOUR_S
SPREAD = 0.3
"""Half of the interval of a likelihood: Google gives none, so this is ours."""
FACTOR = 4.0
"""Of a hazard, up and down; ours as well."""


@dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """What is said of a pool: None where it is not."""

    availability: Estimate | None = None
    hazard_per_hour: Estimate | None = None


class CapacityAdvice:
    """Asked for once an hour, zone and type. ``nodes``: for how many, None to ask nothing."""

    def __init__(self, clients: Clients, nodes: int | None) -> None:
        self._clients = clients
        self._nodes = nodes
        self._kept: TtlCache[tuple[str, str], CapacityEstimate] = TtlCache(HOUR_S, USABLE_S)

    def of(self, region: str, zone: str, instance_type: str, now: datetime) -> CapacityEstimate:
        """What Google says of the pool. Raises ProviderError."""
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
            told = self._clients.of("advice").capacity(
                project=project,
                region=region,
                capacity_advice_request_resource=asked,
                **self._clients.reading(),
            )
        return [each.scores for each in told.recommendations]


def read_advice(scores: Sequence[Any], nodes: int, now: datetime) -> CapacityEstimate:
    """Priors, from the first of the scores.

    "Most" is taken as half: where half of the VMs outlive t, their hazard is ln 2 / t.
    """
    if not scores:
        return CapacityEstimate()
    likely, uptime_s = float(scores[0].obtainability), _seconds(scores[0].estimated_uptime)
    availability = hazard = None
    if "obtainability" in scores[0] and 0 <= likely <= 1:
        source = f"Google Cloud: {nodes} to be had with a likelihood of {likely:.0%}"
        low, high = max(likely - SPREAD, 0.0), min(likely + SPREAD, 1.0)
        availability = Estimate(likely, low, high, Basis.PRIOR, source, now)
    if uptime_s is not None:
        per_hour = math.log(2) * HOUR_S / uptime_s
        source = f"Google Cloud: most run {uptime_s / HOUR_S:.1f} h before they are preempted"
        hazard = Estimate(per_hour, per_hour / FACTOR, per_hour * FACTOR, Basis.PRIOR, source, now)
    return CapacityEstimate(availability, hazard)


def _seconds(text: str) -> float | None:
    """Of a duration ("3600s")."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
