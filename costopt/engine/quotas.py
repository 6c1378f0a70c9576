"""Holds launches to the account's quotas and to what its tenants may have at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from costopt.domain.account import Account
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.ports import InstanceCatalog
from costopt.domain.quota import Quota
from costopt.domain.view import Target
from costopt.engine.draw import ROUNDING_KW, PowerDraw
from costopt.engine.refusal import GuardViolation
from costopt.engine.tally import Limit, ResourceUsage, UsageTally

ROUNDING = {"$/h": 1e-9, "kW": ROUNDING_KW}


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
        return {(q.name, unit): most for q in self._quotas for unit, most in _limits(q)}

    def load(self, job: str, target: Target, usd_per_hour: float) -> Iterator[tuple[Limit, float]]:
        """By quota and unit, how much of it the target holds."""
        machine = self._machines.instance_type(target.pool)
        for quota in self._counting(target.pool, job):
            for unit, _ in _limits(quota):
                each = self._load_of_one(unit, target, machine, usd_per_hour)
                yield (quota.name, unit), target.nodes * each

    def _load_of_one(
        self, unit: str, target: Target, machine: InstanceType | None, usd_per_hour: float
    ) -> float:
        match unit:
            case "nodes":
                return 1.0
            case "GPUs":
                return _gpus(machine)
            case "vCPUs":
                return _vcpus(machine)
            case "$/h":
                return usd_per_hour
            case _:
                return self._draw.node_kw(target.pool, target.power_cap_w)

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
            tally.add(job, ResourceUsage(count, count * usd))
            for limit, amount in self.load(job, Target(pool, count), usd):
                tally.loads[limit] = tally.loads.get(limit, 0.0) + amount

    def refusal(
        self, launch: Launch, usd_per_hour: float, tally: UsageTally
    ) -> GuardViolation | None:
        """The first quota that the launch, at this price of a node, would exceed; None: it fits."""
        target = Target(launch.pool, launch.nodes, launch.power_cap_w)
        wanted = dict(self.load(launch.job, target, usd_per_hour))
        for quota in self._quotas:
            for unit, most in _limits(quota):
                limit = quota.name, unit
                if limit not in wanted:
                    continue
                load = tally.loads.get(limit, 0.0) + wanted[limit]
                if unit == "kW":
                    load = self._draw.kw(launch, self._counted(quota, tally))
                if load - ROUNDING.get(unit, 0.0) > most:
                    # What others hold of it is not the job's tenant's to know.
                    more = f"{launch.nodes} × {launch.pool} would add {wanted[limit]:g} {unit}"
                    return GuardViolation(
                        "quota", f"quota {quota.name} allows {most:g} {unit}: {more}"
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


def _limits(quota: Quota) -> Iterator[tuple[str, float]]:
    limits = {
        "nodes": quota.max_nodes,
        "GPUs": quota.max_gpus,
        "vCPUs": quota.max_vcpus,
        "$/h": quota.max_usd_per_hour,
        "kW": quota.max_kw,
    }
    return ((unit, float(most)) for unit, most in limits.items() if most is not None)


def _gpus(machine: InstanceType | None) -> float:
    return math.inf if machine is None else machine.gpu_count


def _vcpus(machine: InstanceType | None) -> float:
    return math.inf if machine is None else machine.vcpus
