"""Nodes whose wall power was measured while they trained, and the model's errors on them.

``measured_nodes.csv``: mean wall power of 8-GPU nodes in all 17 configurations of which submitters
published power logs with MLPerf Training v4.0 to v5.0, behind no power supply. The Supermicro H100
nodes are cooled by immersion, the Lenovo B200 node by water; both count as liquid. vCPUs and memory
are two 32-core sockets with two threads per core, 2 TiB. The strong-scaling efficiency is that of
the times to train; GPT-3 was never trained on one node, so that its is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from costopt.catalog import Catalog
from costopt.catalog.csv_table import parse_number, read_table
from costopt.domain.market import Cooling, Gpu, InstanceType, Pool
from costopt.domain.power import NodePower
from costopt.energy import NodePowerModel
from costopt.energy.node_power import COMMUNICATION_SHARE, COOLING_OVERHEAD

POOL = Pool.parse("aws/us-east-1/us-east-1a/p5.48xlarge/on_demand")


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """A node of a gang of ``nodes``.

    ``busy_w`` is its mean at the wall while it trains, ``power`` what a plan knows of its pool.
    """

    machine: InstanceType
    nodes: int
    scaling_efficiency: float | None
    busy_w: float
    power: NodePower

    @property
    def modelled_w(self) -> float:
        """The watts that a plan assumes for this gang."""
        return self.power.in_gang(self.scaling_efficiency).busy_w

    def refitted_w(self, communication_share: float, liquid_overhead: float) -> float:
        """The watts under other fitted constants; the overhead of air is kept."""
        power, cooling = self.power, self.machine.cooling
        share = power.communication_share * communication_share / COMMUNICATION_SHARE
        lost = 0.0 if self.scaling_efficiency is None else 1.0 - self.scaling_efficiency
        ratio = liquid_overhead / COOLING_OVERHEAD[cooling] if cooling is Cooling.LIQUID else 1.0
        return power.busy_w * ratio * (1.0 - share * lost)


def measured_nodes() -> tuple[MeasuredNode, ...]:
    """All measured configurations, each with its source."""
    return tuple(_node(row) for row in read_table("measured_nodes", Path(__file__).parent))


def errors(nodes: Sequence[MeasuredNode]) -> list[float]:
    """(modelled − measured) / measured of each node."""
    return [node.modelled_w / node.busy_w - 1.0 for node in nodes]


def cross_validated_errors(nodes: Sequence[MeasuredNode]) -> list[float]:
    """The error of each node, predicted by constants that are fitted to the other systems."""
    found: list[float] = []
    for node in nodes:
        others = [other for other in nodes if other.machine.name != node.machine.name]
        found.append(node.refitted_w(*_fitted(others)) / node.busy_w - 1.0)
    return found


def mean_absolute(values: Sequence[float]) -> float:
    """Mean of the absolute values."""
    return sum(map(abs, values)) / len(values)


def _fitted(nodes: Sequence[MeasuredNode]) -> tuple[float, float]:
    """The communication share and the overhead of liquid cooling of the least mean error."""
    grid = product((n / 50 for n in range(51)), (0.97 + n / 100 for n in range(11)))
    return min(
        grid, key=lambda at: mean_absolute([n.refitted_w(*at) / n.busy_w - 1.0 for n in nodes])
    )


def _node(row: dict[str, str]) -> MeasuredNode:
    nodes, alone_min = int(row["nodes"]), parse_number(row["minutes_of_one_node"])
    machine = InstanceType(
        provider="mlperf",
        name=row["system"],
        gpu=Gpu(
            row["gpu_model"], 0, float(row["gpu_tdp_w"]), float(row["gpu_idle_w"]), 0, "unstated"
        ),
        gpu_count=int(row["gpu_count"]),
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        network_gbps=None,
        cpu_idle_w_per_vcpu=float(row["cpu_idle_w_per_vcpu"]),
        cpu_max_w_per_vcpu=float(row["cpu_max_w_per_vcpu"]),
        source=row["source"],
        cooling=Cooling(row["cooling"]),
    )
    efficiency = None if alone_min is None else alone_min / (nodes * float(row["minutes"]))
    return MeasuredNode(
        machine, nodes, efficiency, float(row["measured_busy_w"]), _power_in_a_plan(machine)
    )


def _power_in_a_plan(machine: InstanceType) -> NodePower:
    class OneMachine(Catalog):
        def instance_type(self, pool: Pool) -> InstanceType | None:
            return machine

    power = NodePowerModel(OneMachine()).node_power(POOL)
    assert power is not None
    return power
