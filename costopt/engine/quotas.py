"""Holds launches to the account's quotas and to what its tenants may have at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from costopt.domain.account import Account
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.limits import ROUNDING, Resource
from costopt.domain.market import Pool
from costopt.domain.policy import CONCURRENT_LIMITS
from costopt.domain.ports import InstanceCatalog
from costopt.domain.quota import Quota
from costopt.domain.view import Target
from costopt.engine.draw import PowerDraw
from costopt.engine.refusal import GuardViolation
from costopt.engine.tally import Limit, ResourceUsage, UsageTally

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
