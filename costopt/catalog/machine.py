"""Instance types as the table states them, and on which terms they are rented."""

from __future__ import annotations

from costopt.catalog.table import Row, parse_number, read_table
from costopt.domain.market import CapacityType, Gpu, InstanceType

InstanceTypeKey = tuple[str, str]
"""Provider and instance type."""


def read_instance_types() -> tuple[
    dict[InstanceTypeKey, InstanceType], dict[InstanceTypeKey, frozenset[CapacityType]]
]:
    """Instance types, and the capacity types on which each is rented (none: no more)."""
    machines: dict[InstanceTypeKey, InstanceType] = {}
    terms: dict[InstanceTypeKey, frozenset[CapacityType]] = {}
    for row in read_table("instance_types"):
        key = row["provider"], row["instance_type"]
        machines[key] = _machine(row)
        terms[key] = frozenset(CapacityType(word) for word in row["terms"].split())
    return machines, terms


def _machine(row: Row) -> InstanceType:
    return InstanceType(
        provider=row["provider"],
        name=row["instance_type"],
        gpu=Gpu(
            model=row["gpu_model"],
            memory_gib=float(row["gpu_memory_gib"]),
            tdp_w=parse_number(row["gpu_tdp_w"]),
            idle_w=parse_number(row["gpu_idle_w"]),
            peak_tflops=float(row["gpu_peak_tflops"]),
            peak_precision=row["gpu_peak_precision"],
        ),
        gpu_count=int(row["gpu_count"]),
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        network_gbps=parse_number(row["network_gbps"]),
        cpu_idle_w_per_vcpu=float(row["cpu_idle_w_per_vcpu"]),
        cpu_max_w_per_vcpu=float(row["cpu_max_w_per_vcpu"]),
        source=row["source"],
    )
