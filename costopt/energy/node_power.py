"""The power that a node draws at its plug, modelled from its parts.

P = φ · [ GPUs · TDP · f(u_gpu) + vCPUs · (c_idle + u_cpu · (c_max − c_idle)) + 0.392 W/GiB · RAM ]

In a gang the GPUs wait for the slowest and for the network: their part falls by
``COMMUNICATION_SHARE`` of the strong-scaling efficiency that the gang lacks.

f is the measured load curve of GPUs, c the watts per vCPU of the CPU's generation, φ what the
parts do not explain: fans, conversion, network, disks. A power cap scales the GPUs' part by the
share of their power that was measured under it; the other parts draw as before.
"""

from __future__ import annotations

from bisect import bisect_right

from costopt.catalog import Catalog, find_traits
from costopt.domain.estimate import Basis
from costopt.domain.market import Cooling, InstanceType, Pool, Region
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import NodePower, PowerCap
from costopt.energy.carbon import annual_gco2e_per_kwh

# Share of TDP by utilisation: B. Davy, "Building an AWS EC2 Carbon Emissions Dataset", Teads 2021.
GPU_LOAD_CURVE = ((0.0, 0.116), (0.1, 0.318), (0.5, 0.752), (1.0, 1.019))

# Cloud Carbon Footprint, methodology, appendix I: 0.392 W per GB of memory.
MEMORY_W_PER_GIB = 0.392

TRAINING_GPU_UTILISATION = 1.0
TRAINING_CPU_UTILISATION = 0.5

# Watts at idle of whole 8-GPU nodes in the MLPerf Training v4.0–v5.0 power logs, middle of the
# range seen (H100 2,100–2,500 W, B200 2,700–3,000 W), over the formula's figure for that node.
# GPU models without an idle measurement keep the formula's figure.
IDLE_CALIBRATION = {"H100-SXM5-80GB": 2300 / 1541, "B200-SXM-180GB": 2850 / 2096}

# Share of the GPUs' power that a node does not draw while it waits for its gang: fitted, with the
# overhead of liquid cooling, to the 17 configurations of 1 to 64 nodes of the MLPerf Training v4.0
# to v5.0 power logs, whose strong-scaling efficiency follows from their times to train.
COMMUNICATION_SHARE = 0.45

# Half the 90 % interval. Of the 17 configurations, each predicted from the other systems, 16 lie
# within 10 %; not knowing the cooling adds ±5 %. Models of GPUs that no log measures rest on the
# nameplate and the curve alone.
MEASURED_RELATIVE_ERROR = 0.12
NAMEPLATE_RELATIVE_ERROR = 0.30


COOLING_OVERHEAD = {Cooling.AIR: 1.14, Cooling.LIQUID: 1.03}
"""φ, fitted to the MLPerf power logs."""


class NodePowerModel:
    """Power of nodes from the catalogue's figures. Implements the port ``PowerModel``."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._powers: dict[tuple[Pool, CarbonSignal], NodePower | None] = {}

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        """None where the instance type, its GPU's power or any PUE of the provider is unknown."""
        key = pool, carbon_signal
        if key not in self._powers:
            self._powers[key] = self._modelled(pool, carbon_signal)
        return self._powers[key]

    def _modelled(self, pool: Pool, carbon_signal: CarbonSignal) -> NodePower | None:
        machine = self._catalog.instance_type(pool)
        if machine is None:
            return None
        busy_w, gpus_w = node_power_w(machine), _gpus_w(machine, TRAINING_GPU_UTILISATION)
        idle_w = idle_power_w(machine)
        region = self._catalog.region(pool.provider, pool.region)
        pue = _pue(pool.provider, region)
        if busy_w is None or gpus_w is None or idle_w is None or pue is None:
            return None
        overhead = COOLING_OVERHEAD[machine.cooling]
        embodied = self._catalog.embodied(pool)
        return NodePower(
            idle_w=min(idle_w, busy_w),
            busy_w=busy_w,
            pue=pue,
            gco2e_per_kwh=None if region is None else annual_gco2e_per_kwh(region, carbon_signal),
            basis=Basis.MODELLED,
            relative_error=_relative_error(machine),
            source=self._source(machine, region, carbon_signal),
            caps=self._caps(machine, busy_w),
            cpu_w=_cpu_w(machine, TRAINING_CPU_UTILISATION),
            other_w=MEMORY_W_PER_GIB * machine.memory_gib,
            overhead=overhead,
            communication_share=COMMUNICATION_SHARE * overhead * gpus_w / busy_w,
            embodied_gco2e_per_hour=None if embodied is None else embodied.gco2e_per_hour,
        )

    def _caps(self, machine: InstanceType, busy_w: float) -> tuple[PowerCap, ...]:
        """The GPU model's measured caps under which the node takes less energy per unit of work."""
        caps: list[PowerCap] = []
        for cap in self._catalog.power_caps(machine.gpu.model):
            capped_w = node_power_w(machine, gpu_power=cap.gpu_power)
            if capped_w is not None and capped_w < busy_w * cap.speed:
                source = f"{cap.basis.value}, {cap.workloads} workloads: {cap.source}"
                caps.append(PowerCap(cap.cap_w, cap.speed, capped_w, source))
        return tuple(caps)

    def _source(
        self, machine: InstanceType, region: Region | None, carbon_signal: CarbonSignal
    ) -> str:
        parts = [f"modelled from TDP, vCPUs and memory ({machine.cooling}-cooled)"]
        if machine.gpu.model in IDLE_CALIBRATION:
            parts.append("idle as measured in MLPerf power logs")
        if region is None or region.pue is None:
            parts.append(f"PUE: fleet mean of {machine.provider}, none known for the region")
        else:
            parts.append(f"PUE: {region.source}")
        if region is not None and annual_gco2e_per_kwh(region, carbon_signal) is not None:
            parts.append(f"{carbon_signal.value} carbon intensity: {region.source}")
        else:
            parts.append(f"{carbon_signal.value} carbon intensity of the region unknown")
        return "; ".join(parts)


def node_power_w(
    machine: InstanceType,
    gpu_utilisation: float = TRAINING_GPU_UTILISATION,
    cpu_utilisation: float = TRAINING_CPU_UTILISATION,
    gpu_power: float = 1.0,
) -> float | None:
    """Watts at the plug at these utilisations (0–1), or None where the GPU's TDP is unknown.

    ``gpu_power`` is the share of the GPUs' power that a power cap leaves.
    """
    gpus_w = _gpus_w(machine, gpu_utilisation)
    if gpus_w is None:
        return None
    return COOLING_OVERHEAD[machine.cooling] * (
        gpus_w * gpu_power + _host_w(machine, cpu_utilisation)
    )


def idle_power_w(machine: InstanceType) -> float | None:
    """Watts at the plug while nothing runs, or None where the GPU's power is unknown.

    The formula at no utilisation, with the GPU's measured idle watts where the catalogue holds
    them instead of the curve's, times the calibration to measured nodes where there is one.
    """
    gpu = machine.gpu
    if gpu.idle_w is None:
        return node_power_w(machine, 0.0, 0.0)
    parts_w = machine.gpu_count * gpu.idle_w + _host_w(machine, 0.0)
    return COOLING_OVERHEAD[machine.cooling] * parts_w * IDLE_CALIBRATION.get(gpu.model, 1.0)


def gpu_load(utilisation: float) -> float:
    """Share of TDP drawn at a utilisation of 0–1, linear between the points of the curve."""
    if not 0.0 <= utilisation <= 1.0:
        raise ValueError(f"utilisation {utilisation} outside 0–1")
    right = bisect_right(GPU_LOAD_CURVE, utilisation, key=lambda point: point[0])
    if right == len(GPU_LOAD_CURVE):
        return GPU_LOAD_CURVE[-1][1]
    (u0, f0), (u1, f1) = GPU_LOAD_CURVE[right - 1], GPU_LOAD_CURVE[right]
    return f0 + (f1 - f0) * (utilisation - u0) / (u1 - u0)


def _gpus_w(machine: InstanceType, utilisation: float) -> float | None:
    if machine.gpu.tdp_w is None:
        return None
    return machine.gpu_count * machine.gpu.tdp_w * gpu_load(utilisation)


def _host_w(machine: InstanceType, cpu_utilisation: float) -> float:
    return _cpu_w(machine, cpu_utilisation) + MEMORY_W_PER_GIB * machine.memory_gib


def _cpu_w(machine: InstanceType, utilisation: float) -> float:
    idle, highest = machine.cpu_idle_w_per_vcpu, machine.cpu_max_w_per_vcpu
    return machine.vcpus * (idle + utilisation * (highest - idle))


def _pue(provider: str, region: Region | None) -> float | None:
    if region is not None and region.pue is not None:
        return region.pue
    return find_traits(provider).pue


def _relative_error(machine: InstanceType) -> float:
    measured = machine.gpu.model in IDLE_CALIBRATION
    return MEASURED_RELATIVE_ERROR if measured else NAMEPLATE_RELATIVE_ERROR
