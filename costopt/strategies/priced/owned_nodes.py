"""The owned nodes among a view's offers: a node is a zone, with a pool for each size of slice."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.cluster import SLICE, slice_type
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.view import JobView, Target, View

Slices = dict[int, int]
"""GPUs by node."""


@dataclass(frozen=True, slots=True)
class OwnedNodes:
    """The nodes of one type that a cluster owns, numbered in the order of ``zones``."""

    provider: str
    region: str
    machine: InstanceType
    zones: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
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
    zones: dict[tuple[str, str, str], list[str]] = {}
    machines: dict[tuple[str, str, str], InstanceType] = {}
    for offer in view.offers:
        pool = offer.pool
        if SLICE in pool.instance_type or not view.account.owns(pool):
            continue
        key = pool.provider, pool.region, pool.instance_type
        zones.setdefault(key, []).append(pool.zone)
        machines[key] = view.machines[pool]
    found = [OwnedNodes(*key[:2], machines[key], tuple(zones[key])) for key in zones]
    return tuple(sorted(found, key=lambda each: (-each.gpus, each.key)))
