"""Limits that jobs share: quotas, dollars per hour, kW, nodes, pool capacity and total budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costopt.domain.account import Account
from costopt.domain.fleet import NodeState
from costopt.domain.job import Job
from costopt.domain.limits import Resource
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.policy import BUDGET_LIMITS
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.offer_columns import is_reserved
from costopt.optimize.request import PlanRequest, Quota


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A maximum ``most`` of the total load of all jobs, in units of ``resource``.

    What counts is in the pools that match ``quota``, or in ``pool`` if there is one. ``near``
    limits, on the capacity of a pool, hold only at present and count only nodes to be launched.
    Where there is a ``tenant`` only its jobs count.
    """

    name: str
    most: float
    resource: Resource
    near: bool = False
    quota: Quota | None = None
    pool: Pool | None = None
    tenant: str | None = None

    def load(
        self, request: PlanRequest, demand: Demand, table: ConfigurationTable, row: int
    ) -> float:
        """Return what the job adds while it runs this configuration, in units of ``resource``."""
        if self.tenant not in (None, demand.job.tenant):
            return 0.0
        if self.resource.per_machine is None:
            return self._gang_load(request, table, row)
        return sum(
            self.node_load(pool, request.machines[pool]) * self._counted(pool, nodes, demand)
            for pool, nodes in table.parts(row)
        )

    def _gang_load(self, request: PlanRequest, table: ConfigurationTable, row: int) -> float:
        """Dollars per hour, or kW under its power cap; all nodes of a gang are alike."""
        pool, _ = table.parts(row)[0]
        if self.quota is not None and not self.quota.matches(pool, request.machines[pool]):
            return 0.0
        return float((table.peak_kw if self.resource is Resource.KW else table.usd_per_hour)[row])

    def _counted(self, pool: Pool, nodes: int, demand: Demand) -> int:
        """A pool's room is for launches: nodes that the job has there already need none."""
        return max(0, nodes - demand.running.get(pool, 0)) if self.near else nodes

    def node_load(self, pool: Pool, machine: InstanceType) -> float:
        """Return what a node of the pool adds to a limit on what instance types hold."""
        if self.pool is not None:
            return float(pool == self.pool)
        if self.quota is not None and not self.quota.matches(pool, machine):
            return 0.0
        if self.quota is not None:
            return self.quota.node_load(self.resource, pool, machine)
        return self.resource.node_load(machine)


class LimitIndex:
    """An index of the few of many limits that a configuration's pools count against."""

    def __init__(self, request: PlanRequest, limits: Sequence[SharedLimit]) -> None:
        self._request, self._limits = request, limits
        self._general = [n for n, limit in enumerate(limits) if limit.pool is None]
        self._own: dict[Pool, list[int]] = {}
        for number, limit in enumerate(limits):
            if limit.pool is not None:
                self._own.setdefault(limit.pool, []).append(number)
        self._of_family: dict[object, list[int]] = {}

    def loads(
        self, demand: Demand, table: ConfigurationTable, row: int
    ) -> tuple[tuple[int, float], ...]:
        """Return (number of the limit, load) of a configuration for each limit that it loads."""
        numbers = sorted({n for pool, _ in table.parts(row) for n in self._numbers(pool)})
        found = [(n, self._limits[n].load(self._request, demand, table, row)) for n in numbers]
        return tuple((number, load) for number, load in found if load)

    def _numbers(self, pool: Pool) -> list[int]:
        """Zones of a region count alike, but for what each pool has."""
        family = pool.quota_kind
        if family not in self._of_family:
            machine = self._request.machines[pool]
            self._of_family[family] = [
                number
                for number in self._general
                if (quota := self._limits[number].quota) is None or quota.matches(pool, machine)
            ]
        return [*self._of_family[family], *self._own.get(pool, ())]


def shared_limits(request: PlanRequest) -> tuple[SharedLimit, ...]:
    """Return every limit of the request that two jobs could violate together."""
    concurrent = request.policy.limits.concurrent()
    shared = [SharedLimit(spec.field, most, resource) for spec, resource, most in concurrent]
    for quota in all_quotas(request):
        shared.extend(_quota_limits(quota))
    shared.extend(
        _capacity(offer, request) for offer in request.offers if offer.nodes_available is not None
    )
    return tuple(shared)


def all_quotas(request: PlanRequest) -> tuple[Quota, ...]:
    """Return the request's quotas and those that its tenants may use at a time."""
    return Account(request.quotas, request.tenants).limits


def _quota_limits(quota: Quota) -> Iterator[SharedLimit]:
    for resource, most in quota.limits():
        name = f"quota {quota.name}"
        yield SharedLimit(name, most, resource, quota=quota, tenant=quota.tenant)


def room_nodes(offer: Offer, request: PlanRequest, demand: Demand) -> float:
    """Return how many nodes of an offer a job's gang can have, its own included; ∞ where unknown.

    The available nodes of a spot or on-demand pool are for launches; a reservation's own nodes
    become free again when another job releases them.
    """
    if offer.nodes_available is None:
        return math.inf
    if not is_reserved(offer.pool):
        return offer.nodes_available + demand.running.get(offer.pool, 0)
    return offer.nodes_available + _living_nodes(request, offer.pool)


def _living_nodes(request: PlanRequest, pool: Pool) -> int:
    return sum(
        node.pool == pool and node.state in (NodeState.PENDING, NodeState.RUNNING)
        for view in request.jobs
        for node in view.nodes
    )


def _capacity(offer: Offer, request: PlanRequest) -> SharedLimit:
    """What a pool has: for launches at present, in a reservation for good."""
    assert offer.nodes_available is not None
    name = f"capacity of {offer.pool}"
    if not is_reserved(offer.pool):
        return SharedLimit(name, offer.nodes_available, Resource.NODES, near=True, pool=offer.pool)
    most = offer.nodes_available + _living_nodes(request, offer.pool)
    return SharedLimit(name, most, Resource.NODES, pool=offer.pool)


@dataclass(frozen=True, slots=True)
class TotalLimit:
    """A maximum of dollars for all jobs together, or for all jobs of one tenant."""

    name: str
    max_usd: float
    tenant: str | None = None

    def counts(self, job: Job) -> bool:
        """Return whether the job's dollars count against the limit."""
        return self.tenant in (None, job.tenant)


def total_limits(request: PlanRequest) -> tuple[TotalLimit, ...]:
    """Return every limit on the plan's dollars: the tightest of the policy's and each tenant's."""
    policy = _policy_total(request)
    tenants = sorted(request.tenants.values(), key=lambda tenant: tenant.name)
    return (
        *(() if policy is None else (TotalLimit(f"{policy[0]} of the policy", policy[1]),)),
        *(
            TotalLimit(f"max_usd of tenant {tenant.name}", tenant.max_usd, tenant.name)
            for tenant in tenants
            if tenant.max_usd is not None
        ),
    )


def max_usd_of(request: PlanRequest, job: Job) -> float | None:
    """Return the maximum dollars of a plan of the job alone; None where nothing limits them."""
    caps = [total.max_usd for total in total_limits(request) if total.counts(job)]
    if job.budget.max_usd is not None:
        caps.append(job.budget.max_usd)
    return min(caps, default=None)


def _policy_total(request: PlanRequest) -> tuple[str, float] | None:
    """The tightest limit on all jobs' dollars together; a month's counts for a plan within one."""
    limits = request.policy.limits
    set_limits = [(spec.field, limits.maximum(spec)) for spec in BUDGET_LIMITS]
    found = [(name, most) for name, most in set_limits if most is not None]
    return min(found, key=lambda pair: pair[1]) if found else None
