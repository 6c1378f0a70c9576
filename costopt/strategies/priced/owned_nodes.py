"""The owned nodes among a view's offers: a node is a zone, with a pool for each size of slice."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costopt.domain.cluster import SLICE, slice_type
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.view import JobView, Target, View

Key = tuple[str, str, str]
Slices = dict[int, int]
"""GPUs by node."""


@dataclass(frozen=True, slots=True)
class OwnedNodes:
    """The nodes of one type that a cluster owns, numbered in the order of ``zones``.

    ``others`` are the GPUs of each that somebody else uses; ``max_gpus`` is what a quota allows.
    """

    provider: str
    region: str
    machine: InstanceType
    zones: tuple[str, ...]
    others: tuple[int, ...] = ()
    max_gpus: float = math.inf

    @property
    def key(self) -> Key:
        """Return provider, region and instance type."""
        return self.provider, self.region, self.machine.name

    @property
    def node_gpus(self) -> int:
        """Return the GPUs of a node."""
        return self.machine.gpu_count

    @property
    def gpus(self) -> int:
        """Return the GPUs of all nodes."""
        return self.node_gpus * len(self.zones)

    @property
    def usable_gpus(self) -> int:
        """Return the GPUs that jobs may have together now."""
        return int(min(self.gpus - sum(self.others), self.max_gpus))

    def machine_name(self, gpus: int) -> str:
        """Return the instance type of so many GPUs of one node."""
        name = self.machine.name
        return name if gpus == self.node_gpus else slice_type(name, gpus)

    def targets(self, slices: Slices) -> tuple[Target, ...]:
        """Return these GPUs as a decision's targets."""
        return tuple(Target(self._pool(node, slices[node]), 1) for node in sorted(slices))

    def slices(self, job_view: JobView) -> Slices:
        """Return the GPUs that the job's nodes have here."""
        found: Slices = {}
        number = {zone: index for index, zone in enumerate(self.zones)}
        for node in job_view.nodes:
            pool = node.pool
            name, _, part = pool.instance_type.partition(SLICE)
            if (pool.provider, pool.region, name) == self.key and pool.zone in number:
                index = number[pool.zone]
                found[index] = found.get(index, 0) + (int(part) if part else self.node_gpus)
        return found

    def _pool(self, node: int, gpus: int) -> Pool:
        zone, name = self.zones[node], self.machine_name(gpus)
        return Pool(self.provider, self.region, zone, name, CapacityType.RESERVED)


def find_owned_nodes(view: View) -> tuple[OwnedNodes, ...]:
    """Return the owned nodes of the view, by type, the most GPUs first."""
    ours: dict[Key, dict[str, float]] = {}
    machines: dict[Key, InstanceType] = {}
    max_gpus: dict[Key, float] = {}
    for offer in view.offers:
        pool = offer.pool
        if not view.account.owns(pool):
            continue
        key, machine = (pool.provider, pool.region, _node_type(pool)), view.machines[pool]
        gpus = math.inf if offer.nodes_ours is None else offer.nodes_ours * machine.gpu_count
        zones = ours.setdefault(key, {})
        zones[pool.zone] = max(gpus, zones.get(pool.zone, 0))
        if SLICE not in pool.instance_type:
            machines[key] = machine
            quotas = (q for q in view.account.quotas if not q.tenant and q.matches(pool, machine))
            max_gpus[key] = min(
                (q.max_gpus for q in quotas if q.max_gpus is not None), default=math.inf
            )
    found = [
        OwnedNodes(
            *key[:2],
            machine,
            tuple(ours[key]),
            tuple(int(max(0, machine.gpu_count - gpus)) for gpus in ours[key].values()),
            max_gpus[key],
        )
        for key, machine in machines.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.gpus, each.key)))


def _node_type(pool: Pool) -> str:
    return pool.instance_type.partition(SLICE)[0]
