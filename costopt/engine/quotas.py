"""Quotas: what nodes hold and may hold at a time, and ``GuardViolation``.

Holds launches to the account's quotas and to the limits of its tenants. What living nodes hold is
counted once and then updated node by node, so that a launch need not scan all of them. Power is
what nodes draw at the meter while they train.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from costopt.domain.account import Account, Quota
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.limits import ROUNDING, Resource
from costopt.domain.market import Pool
from costopt.domain.policy import CONCURRENT_LIMITS
from costopt.domain.ports import InstanceCatalog, PowerModel
from costopt.domain.view import Target
from costopt.engine.billing import Payer
from costopt.engine.journal import Journal

_TALLIED = tuple(
    spec.resource
    for spec in CONCURRENT_LIMITS
    if spec.resource and spec.resource is not Resource.KW
)
"""The resources that policies limit; kilowatts are summed by node, as power caps change them."""


class QuotaLedger:
    """Counts every living node until the provider reports its end, including draining ones."""

    def __init__(
        self, account: Account, machines: InstanceCatalog, draw: PowerDraw, jobs: Mapping[str, Job]
    ) -> None:
        self.set_account(account)
        self._machines = machines
        self._draw = draw
        self._jobs = jobs

    def set_account(self, account: Account) -> None:
        """Apply the quotas and tenants' limits of this account from now on."""
        self._quotas = account.limits
        self._of_pool: dict[Pool, tuple[Quota, ...]] = {}

    @property
    def bind(self) -> bool:
        """Return whether there is any quota."""
        return bool(self._quotas)

    @property
    def most(self) -> Mapping[Limit, float]:
        """Return, by quota and unit, how much may be held at a time."""
        return {
            (quota.name, resource.unit): most
            for quota in self._quotas
            for resource, most in quota.limits()
        }

    def load(self, job: str, target: Target, usd_per_hour: float) -> Iterator[tuple[Limit, float]]:
        """Yield, by quota and unit, how much of it the target holds."""
        for quota in self._counting(target.pool, job):
            for resource, _ in quota.limits():
                each = (
                    quota.node_load(resource, target.pool, None)
                    if resource is Resource.COMMITTED
                    else self.node_load(resource, target.pool, usd_per_hour, target.power_cap_w)
                )
                yield (quota.name, resource.unit), target.nodes * each

    def node_load(
        self, resource: Resource, pool: Pool, usd_per_hour: float, power_cap_w: float | None = None
    ) -> float:
        """Return what a node of the pool holds of the resource; ∞ where that is unknown."""
        if resource is Resource.USD_PER_HOUR:
            return usd_per_hour
        if resource is Resource.KW:
            return self._draw.node_kw(pool, power_cap_w)
        return resource.node_load(self._machines.instance_type(pool))

    def tally(self, nodes: Iterable[Node]) -> UsageTally:
        """Return what these nodes hold of every quota."""
        tally = UsageTally()
        self.add_nodes(tally, nodes)
        return tally

    def add_nodes(self, tally: UsageTally, nodes: Iterable[Node]) -> None:
        """Count more nodes, each at its launch price."""
        more = tuple(nodes)
        tally.nodes += more
        alike = Counter((node.job, node.pool, node.usd_per_hour) for node in more)
        for (job, pool, usd), count in alike.items():
            held = {each.key: count * self.node_load(each, pool, usd) for each in _TALLIED}
            tally.add(job, ResourceUsage(held))
            for limit, amount in self.load(job, Target(pool, count), usd):
                tally.loads[limit] = tally.loads.get(limit, 0.0) + amount

    def refusal(
        self, launch: Launch, usd_per_hour: float, tally: UsageTally
    ) -> GuardViolation | None:
        """Return the first quota that the launch would exceed at this node price, or None."""
        target = Target(launch.pool, launch.nodes, launch.power_cap_w)
        wanted = dict(self.load(launch.job, target, usd_per_hour))
        for quota in self._quotas:
            for resource, most in quota.limits():
                limit = quota.name, resource.unit
                if limit not in wanted:
                    continue
                load = tally.loads.get(limit, 0.0) + wanted[limit]
                if resource is Resource.KW:
                    load = self._draw.kw(launch, self._counted(quota, tally))
                if load > most + ROUNDING:
                    # Usage by others must not be disclosed to the job's tenant.
                    more = f"{launch.nodes} × {launch.pool} would add {wanted[limit]:g}"
                    return GuardViolation(
                        "quota",
                        f"quota {quota.name} allows {most:g} {resource.unit}: "
                        f"{more} {resource.unit}",
                    )
        return None

    def _counted(self, quota: Quota, tally: UsageTally) -> list[Node]:
        return [node for node in tally.nodes if quota in self._counting(node.pool, node.job)]

    def _counting(self, pool: Pool, job: str) -> list[Quota]:
        """Return the quotas that nodes of the job in this pool count against.

        A machine that is not in the catalog counts against every quota that its job does.
        """
        if pool not in self._of_pool:
            machine = self._machines.instance_type(pool)
            self._of_pool[pool] = tuple(
                q for q in self._quotas if machine is None or q.matches(pool, machine)
            )
        tenant = self._jobs[job].tenant
        return [q for q in self._of_pool[pool] if q.tenant in (None, tenant)]


Limit = tuple[str, str]
"""A quota's name and the unit it counts."""


@dataclass(slots=True)
class ResourceUsage:
    """What nodes hold, by resource name, and how many were requested in the last hour."""

    held: dict[str, float] = field(default_factory=dict)
    launched: int = 0

    def amount(self, resource: Resource) -> float:
        """Return how much of the resource they hold."""
        return self.held.get(resource.key, 0.0)

    def copy(self) -> ResourceUsage:
        """Return a copy that changes independently."""
        return ResourceUsage({**self.held}, self.launched)

    def add(self, more: ResourceUsage) -> None:
        """Add another usage to this one."""
        for name, amount in more.held.items():
            self.held[name] = self.held.get(name, 0.0) + amount
        self.launched += more.launched


@dataclass(slots=True)
class UsageTally:
    """``loads`` by limit; usage of each job, and ``whole``, of all. ``launched_for``: nodes that
    were launched in the last hour for jobs closed since, by payer."""

    nodes: list[Node] = field(default_factory=list)
    loads: dict[Limit, float] = field(default_factory=dict)
    whole: ResourceUsage = field(default_factory=ResourceUsage)
    launched_for: dict[Payer, int] = field(default_factory=dict)
    _by_job: dict[str, ResourceUsage] = field(default_factory=dict)
    _by_jobs: dict[frozenset[str], ResourceUsage] = field(default_factory=dict)

    def add(self, job: str, more: ResourceUsage) -> None:
        """Add to the job's usage."""
        self.whole.add(more)
        self._by_job.setdefault(job, ResourceUsage()).add(more)
        for jobs, held in self._by_jobs.items():
            if job in jobs:
                held.add(more)

    def of_job(self, job: str) -> ResourceUsage:
        """Return the usage of a job."""
        return self._by_job.get(job, ResourceUsage())

    def of(self, jobs: frozenset[str]) -> ResourceUsage:
        """Return the usage of these jobs together: summed once, and then updated."""
        if jobs not in self._by_jobs:
            together = self._by_jobs[jobs] = ResourceUsage()
            for job, held in self._by_job.items():
                if job in jobs:
                    together.add(held)
        return self._by_jobs[jobs]

    def nodes_of(self, jobs: frozenset[str]) -> tuple[Node, ...]:
        """Return the nodes of these jobs."""
        return tuple(node for node in self.nodes if node.job in jobs)

    def copy(self) -> UsageTally:
        """Return a copy, to count launches that may yet be refused."""
        return UsageTally(
            [*self.nodes],
            {**self.loads},
            self.whole.copy(),
            self.launched_for,
            {job: held.copy() for job, held in self._by_job.items()},
            {jobs: held.copy() for jobs, held in self._by_jobs.items()},
        )


class PowerDraw:
    """Kilowatts of the running nodes and of those to be launched."""

    def __init__(self, journal: Journal, powers: PowerModel) -> None:
        self._journal = journal
        self._powers = powers

    def kw(self, launch: Launch, nodes: Iterable[Node]) -> float:
        """Return what these nodes and the launched ones draw together, in kW.

        The launching job's nodes count under the cap that it will request of them all, the others
        under the limit that they apply now; a node whose power is unknown counts as infinite.
        """
        total = launch.nodes * self.node_kw(launch.pool, launch.power_cap_w)
        for node in nodes:
            cap_w = launch.power_cap_w
            if node.job != launch.job:
                limit = self._journal.records[node.job].power_limits.get(node.node_id)
                cap_w = None if limit is None else limit.cap_w
            total += self.node_kw(node.pool, cap_w)
        return total

    def node_kw(self, pool: Pool, cap_w: float | None) -> float:
        """Return what one node draws at the meter under this cap, in kW; ∞ where unknown."""
        power = self._powers.node_power(pool)
        if power is None:
            return math.inf
        capped = (cap.busy_w for cap in power.caps if cap.cap_w == cap_w)
        return next(capped, power.busy_w) * power.pue / 1000


@dataclass(frozen=True, slots=True)
class GuardViolation:
    """Which guard refused, and why; with ``pool``, that pool is put in cooldown."""

    guard: str
    message: str
    pool: str | None = None
