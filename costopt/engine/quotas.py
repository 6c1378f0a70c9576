"""Holds launches to the account's quotas and to what its tenants may have at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from costopt.domain.account import Account
from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Pool
from costopt.domain.ports import Machines
from costopt.domain.quota import Quota
from costopt.domain.view import Target
from costopt.engine.draw import ROUNDING_KW, Draw
from costopt.engine.refusal import Refusal

ROUNDING_USD = 1e-9


class Quotas:
    """Every living node counts until the provider says that it is gone, draining ones included."""

    def __init__(
        self, account: Account, machines: Machines, draw: Draw, jobs: Mapping[str, Job]
    ) -> None:
        self.hold_to(account)
        self._machines = machines
        self._draw = draw
        self._jobs = jobs

    def hold_to(self, account: Account) -> None:
        """From now on these quotas and tenants' limits count."""
        self._quotas = account.limits

    @property
    def bind(self) -> bool:
        """Whether there is any quota at all."""
        return bool(self._quotas)

    @property
    def most(self) -> Mapping[tuple[str, str], float]:
        """By quota and unit, how much may be held at a time."""
        return {(q.name, unit): most for q in self._quotas for unit, most in _limits(q)}

    def load(
        self, job: str, target: Target, usd_per_hour: float
    ) -> Mapping[tuple[str, str], float]:
        """By quota and unit, how much of it the target holds."""
        loads: dict[tuple[str, str], float] = {}
        machine = self._machines.machine(target.pool)
        for quota in self._quotas:
            if self._counts(quota, target.pool, job):
                for unit, _ in _limits(quota):
                    each = self._load_of_one(unit, target, machine, usd_per_hour)
                    loads[quota.name, unit] = target.nodes * each
        return loads

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

    def refusal(self, launch: Launch, usd_per_hour: float, nodes: Sequence[Node]) -> Refusal | None:
        """The first quota that the launch, at this price of a node, would exceed; None: it fits."""
        for quota in self._quotas:
            if not self._counts(quota, launch.pool, launch.job):
                continue
            counted = [node for node in nodes if self._counts(quota, node.pool, node.job)]
            for load, most, unit in self._loads(quota, launch, usd_per_hour, counted):
                if load > most:
                    there = f"{launch.nodes} × {launch.pool} would make it {load:g} {unit}"
                    return Refusal("quota", f"quota {quota.name} allows {most:g} {unit}: {there}")
        return None

    def _counts(self, quota: Quota, pool: Pool, job: str) -> bool:
        """A machine that the catalogue does not hold counts wherever its job does."""
        if quota.tenant not in (None, self._jobs[job].tenant):
            return False
        machine = self._machines.machine(pool)
        return machine is None or quota.matches(pool, machine)

    def _loads(
        self, quota: Quota, launch: Launch, usd_per_hour: float, nodes: Sequence[Node]
    ) -> Iterator[tuple[float, float, str]]:
        """(load with the launch, limit, unit) of each limit that the quota sets."""
        if quota.max_nodes is not None:
            yield len(nodes) + launch.nodes, quota.max_nodes, "nodes"
        pools = [*(node.pool for node in nodes), *[launch.pool] * launch.nodes]
        machines = [self._machines.machine(pool) for pool in pools]
        if quota.max_gpus is not None:
            yield sum(_gpus(machine) for machine in machines), quota.max_gpus, "GPUs"
        if quota.max_vcpus is not None:
            yield sum(_vcpus(machine) for machine in machines), quota.max_vcpus, "vCPUs"
        if quota.max_usd_per_hour is not None:
            usd = sum(node.usd_per_hour for node in nodes) + launch.nodes * usd_per_hour
            yield usd - ROUNDING_USD, quota.max_usd_per_hour, "$/h"
        if quota.max_kw is not None:
            yield self._draw.kw(launch, nodes) - ROUNDING_KW, quota.max_kw, "kW"


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
