"""Quota accounting, kW; GuardViolation.

Holds launches to the account's quotas and to what its tenants may have at a time.

What living nodes hold, counted once and then node by node, so that a launch need not look at
all of them.

What nodes draw at the meter once they train.

Why a guard says no.
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
"""What policies limit; kilowatts are summed over the nodes, as power caps change them."""


class QuotaLedger:
    """Every living node counts until the provider says that it is gone, draining ones included."""

    def __init__(
        self, account: Account, machines: InstanceCatalog, draw: PowerDraw, jobs: Mapping[str, Job]
    ) -> None:
        self.set_account(account)
        self._machines = machines
        self._draw = draw
        self._jobs = jobs

    def set_account(self, account: Account) -> None:
        """From now on these quotas and tenants' limits count."""
        self._quotas = account.limits
        self._of_pool: dict[Pool, tuple[Quota, ...]] = {}

    @property
    def bind(self) -> bool:
        """Whether there is any quota at all."""
        return bool(self._quotas)

    @property
    def most(self) -> Mapping[Limit, float]:
        """By quota and unit, how much may be held at a time."""
        return {
            (quota.name, resource.unit): most
            for quota in self._quotas
            for resource, most in quota.limits()
        }

    def load(self, job: str, target: Target, usd_per_hour: float) -> Iterator[tuple[Limit, float]]:
        """By quota and unit, how much of it the target holds."""
        for quota in self._counting(target.pool, job):
            for resource, _ in quota.limits():
                each = self.node_load(resource, target.pool, usd_per_hour, target.power_cap_w)
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
        """What these nodes hold of every quota."""
        tally = UsageTally()
        self.add_nodes(tally, nodes)
        return tally

    def add_nodes(self, tally: UsageTally, nodes: Iterable[Node]) -> None:
        """Count more nodes, each at the price of its launch."""
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
        """The first quota that the launch, at this price of a node, would exceed; None: it fits."""
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
                    # What others hold of it is not the job's tenant's to know.
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
        """The quotas that nodes of the job in this pool count against.

        A machine that the catalogue does not hold counts wherever its job does.
        """
        if pool not in self._of_pool:
            machine = self._machines.instance_type(pool)
            self._of_pool[pool] = tuple(
                q for q in self._quotas if machine is None or q.matches(pool, machine)
            )
        tenant = self._jobs[job].tenant
        return [q for q in self._of_pool[pool] if q.tenant in (None, tenant)]


Limit = tuple[str, str]
"""A quota's name and what it counts."""


@dataclass(slots=True)
class ResourceUsage:
    """What nodes hold, by name of the resource, and how many were asked for in the last hour."""

    held: dict[str, float] = field(default_factory=dict)
    launched: int = 0

    def amount(self, resource: Resource) -> float:
        """Return how much of the resource they hold."""
        return self.held.get(resource.key, 0.0)

    def copy(self) -> ResourceUsage:
        """Return one that changes independently."""
        return ResourceUsage({**self.held}, self.launched)

    def add(self, more: ResourceUsage) -> None:
        """Count these in."""
        for name, amount in more.held.items():
            self.held[name] = self.held.get(name, 0.0) + amount
        self.launched += more.launched


@dataclass(slots=True)
class UsageTally:
    """``loads`` by limit; what each job holds, and ``whole``, what all do. ``launched_for``: nodes
    launched in the last hour for jobs that were closed meanwhile, by who pays."""

    nodes: list[Node] = field(default_factory=list)
    loads: dict[Limit, float] = field(default_factory=dict)
    whole: ResourceUsage = field(default_factory=ResourceUsage)
    launched_for: dict[Payer, int] = field(default_factory=dict)
    _by_job: dict[str, ResourceUsage] = field(default_factory=dict)
    _by_jobs: dict[frozenset[str], ResourceUsage] = field(default_factory=dict)

    def add(self, job: str, more: ResourceUsage) -> None:
        """The job holds more."""
        self.whole.add(more)
        self._by_job.setdefault(job, ResourceUsage()).add(more)
        for jobs, held in self._by_jobs.items():
            if job in jobs:
                held.add(more)

    def of_job(self, job: str) -> ResourceUsage:
        """What it holds."""
        return self._by_job.get(job, ResourceUsage())

    def of(self, jobs: frozenset[str]) -> ResourceUsage:
        """What they hold together: added up once, and kept up to date."""
        if jobs not in self._by_jobs:
            together = self._by_jobs[jobs] = ResourceUsage()
            for job, held in self._by_job.items():
                if job in jobs:
                    together.add(held)
        return self._by_jobs[jobs]

    def nodes_of(self, jobs: frozenset[str]) -> tuple[Node, ...]:
        """The nodes of these jobs."""
        return tuple(node for node in self.nodes if node.job in jobs)

    def copy(self) -> UsageTally:
        """Another one, to count what may yet come to nothing."""
        return UsageTally(
            [*self.nodes],
            {**self.loads},
            self.whole.copy(),
            self.launched_for,
            {job: held.copy() for job, held in self._by_job.items()},
            {jobs: held.copy() for jobs, held in self._by_jobs.items()},
        )


class PowerDraw:
    """Kilowatts of the nodes that run and of those to be launched."""

    def __init__(self, journal: Journal, powers: PowerModel) -> None:
        self._journal = journal
        self._powers = powers

    def kw(self, launch: Launch, nodes: Iterable[Node]) -> float:
        """What these nodes and the launched ones draw together.

        The launching job's nodes count under the cap that it will ask of them all, the others under
        the limit that they keep now; a node whose power is unknown draws without end.
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
        """What one node draws at the meter under this cap; without end where it is unknown."""
        power = self._powers.node_power(pool)
        if power is None:
            return math.inf
        capped = (cap.busy_w for cap in power.caps if cap.cap_w == cap_w)
        return next(capped, power.busy_w) * power.pue / 1000


@dataclass(frozen=True, slots=True)
class GuardViolation:
    """Which guard said no, and why; ``pool`` where it is to be left alone for a while."""

    guard: str
    message: str
    pool: str | None = None
