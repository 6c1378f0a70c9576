"""What the optimizer is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.market import CapacityType, InstanceType, Offer, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Policy
from costopt.domain.power import NodePower
from costopt.domain.view import JobView


@dataclass(frozen=True, slots=True)
class Quota:
    """At most ``max_nodes`` nodes and ``max_gpus`` GPUs at a time where all given fields match.

    A field that is None matches everything; a limit that is None does not limit. ``gpu_model``
    matches as a job's request does ("H100" means every H100).
    """

    name: str
    provider: str | None = None
    region: str | None = None
    gpu_model: str | None = None
    capacity_type: CapacityType | None = None
    max_nodes: int | None = None
    max_gpus: int | None = None

    def matches(self, pool: Pool, machine: InstanceType) -> bool:
        """Whether nodes of ``pool`` count against this quota."""
        return (
            self.provider in (None, pool.provider)
            and self.region in (None, pool.region)
            and self.capacity_type in (None, pool.capacity_type)
            and (self.gpu_model is None or machine.gpu.answers_to(self.gpu_model))
        )


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Jobs, the market as it stands, and the policy.

    ``offers`` may hold unusable ones: the planner screens them for everything but the age of
    their prices, which is the caller's to judge; ``rejections`` are the caller's own and are
    passed on in the plan. ``slot_s`` is the slot length where jobs compete for capacity, None to
    let the planner choose.
    """

    now: datetime
    jobs: tuple[JobView, ...]
    offers: tuple[Offer, ...]
    machines: Mapping[Pool, InstanceType]
    powers: Mapping[Pool, NodePower]
    policy: Policy
    quotas: tuple[Quota, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    slot_s: float | None = None
