"""Nodes whose wall power was measured while they trained, and the error of the model on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costopt.catalog.csv_table import read_table
from costopt.domain.market import Gpu, InstanceType
from costopt.energy.node_power import (
    TRAINING_CPU_UTILISATION,
    TRAINING_GPU_UTILISATION,
    Cooling,
    node_power_w,
)

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """One node of a published power log; ``busy_w`` is its mean at the wall while training."""

    machine: InstanceType
    cooling: Cooling
    busy_w: float

    @property
    def modelled_w(self) -> float | None:
        """The modelled watts of the same node."""
        return node_power_w(
            self.machine,
            self.cooling,
            gpu_utilisation=TRAINING_GPU_UTILISATION,
            cpu_utilisation=TRAINING_CPU_UTILISATION,
        )


def measured_nodes() -> tuple[MeasuredNode, ...]:
    """The measured nodes that the project ships, each with its source."""
    return tuple(_node(row) for row in read_table("measured_nodes", DATA))


def mean_absolute_error(nodes: Iterable[MeasuredNode]) -> float:
    """Mean of |modelled − measured| / measured over the nodes whose power can be modelled."""
    errors = [
        abs(modelled - node.busy_w) / node.busy_w
        for node in nodes
        if (modelled := node.modelled_w) is not None
    ]
    return sum(errors) / len(errors)


def _node(row: dict[str, str]) -> MeasuredNode:
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
    )
    return MeasuredNode(machine, Cooling(row["cooling"]), float(row["measured_busy_w"]))
