"""Limits that jobs share at each instant: quotas, hourly dollars, nodes, what a pool has now."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.market import InstanceType, Pool
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.request import PlanRequest, Quota


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """The loads of all jobs together stay within ``most``; ``near`` limits hold only at present.

    Exactly one of ``quota``, ``pool`` and ``usd`` or ``nodes`` says what is counted.
    """

    name: str
    most: float
    kind: str
    near: bool = False
    quota: Quota | None = None
    pool: Pool | None = None

    def load(
        self, request: PlanRequest, demand: Demand, table: ConfigurationTable, row: int
    ) -> float:
        """What the job adds while it runs this configuration."""
        if self.kind == "usd_per_hour":
            return float(table.usd_per_hour[row])
        return sum(
            self._node_load(pool, request.machines[pool]) * self._counted(pool, nodes, demand)
            for pool, nodes in table.parts(row)
        )

    def _counted(self, pool: Pool, nodes: int, demand: Demand) -> int:
        """A pool's room is for launches: nodes that the job has there already need none."""
        return max(0, nodes - demand.running.get(pool, 0)) if self.kind == "pool" else nodes

    def _node_load(self, pool: Pool, machine: InstanceType) -> float:
        if self.kind == "pool":
            return float(pool == self.pool)
        if self.quota is not None and not self.quota.matches(pool, machine):
            return 0.0
        return float(machine.gpu_count if self.kind == "gpus" else 1)


def shared_limits(request: PlanRequest) -> tuple[SharedLimit, ...]:
    """Every limit of the request that two jobs could break together."""
    limits = request.policy.limits
    shared: list[SharedLimit] = []
    if limits.max_usd_per_hour is not None:
        shared.append(SharedLimit("max_usd_per_hour", limits.max_usd_per_hour, "usd_per_hour"))
    if limits.max_nodes is not None:
        shared.append(SharedLimit("max_nodes", limits.max_nodes, "nodes"))
    for quota in request.quotas:
        if quota.max_nodes is not None:
            shared.append(SharedLimit(f"quota {quota.name}", quota.max_nodes, "nodes", quota=quota))
        if quota.max_gpus is not None:
            shared.append(SharedLimit(f"quota {quota.name}", quota.max_gpus, "gpus", quota=quota))
    shared.extend(
        SharedLimit(
            f"capacity of {offer.pool}",
            offer.nodes_available,
            "pool",
            near=True,
            pool=offer.pool,
        )
        for offer in request.offers
        if offer.nodes_available is not None
    )
    return tuple(shared)


def totals_limit_usd(request: PlanRequest) -> tuple[str, float] | None:
    """The tightest limit on all jobs' dollars together; a month's counts for a plan within one."""
    limits = request.policy.limits
    found = [
        (name, most)
        for name, most in (
            ("max_usd", limits.max_usd),
            ("max_usd_per_month", limits.max_usd_per_month),
        )
        if most is not None
    ]
    return min(found, key=lambda pair: pair[1]) if found else None
