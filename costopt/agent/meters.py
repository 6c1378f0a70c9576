"""The meters of one node: NVML for its GPUs, RAPL for its CPUs, read once a second beside the
agent's loop.

NVML gives energy, power, utilization and memory of all NVIDIA GPUs. The total-energy counter (mJ
since the driver was loaded; Volta and later) is used where it exists; elsewhere the power (mW, the
mean of the last second on Ampere and later) is integrated over time. (NVIDIA Management Library API
reference, nvmlDeviceGetTotalEnergyConsumption, -PowerUsage.)

RAPL gives the energy of the CPU packages and their memory, from the kernel's powercap tree. Each
zone counts microjoules in ``energy_uj`` and restarts at 0 beyond ``max_energy_range_uj``: after
some 15 minutes at 300 W, so it must be read more often than that. Zones named package-N hold the
cores; a dram zone under them is not part of its package; psys is the whole platform and would count
the packages twice. Since 2020 only root may read them (CVE-2020-8694). (Linux kernel documentation,
"Power Capping Framework".)
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costopt.protocol.messages import CPU, GPU, NodeMeasurement


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The GPUs' figures since the last sample: ``joules``, and shares of 0–1; None where NVML has
    none.
    """

    joules: float
    utilization: float | None
    memory_share: float | None


class GpuMeter:
    """A meter of ``gpus`` GPUs. A GPU whose energy cannot be read makes ``ok`` False."""

    def __init__(self, nvml: Any) -> None:
        """Use ``nvml``, the initialized module pynvml. Raise its NVMLError if a GPU fails."""
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._gpus = [_Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        self.gpus = count

    def sample(self, now_s: float) -> GpuSample | None:
        """Return the change since the last sample, at monotonic ``now_s``; None if a GPU fails."""
        try:
            joules = sum(gpu.joules(now_s) for gpu in self._gpus)
        except self._nvml.NVMLError:
            return None
        used = [share for gpu in self._gpus if (share := gpu.utilization()) is not None]
        full = [share for gpu in self._gpus if (share := gpu.memory_share()) is not None]
        return GpuSample(joules, sum(used) / len(used) if used else None, max(full, default=None))

    def close(self) -> None:
        """Shut the library down."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_gpu_meter() -> tuple[GpuMeter | None, str]:
    """Return the meter, or None and the reason: no library, no driver or no GPU."""
    try:
        import pynvml
    except ImportError:
        return None, "GPUs are not measured: the package nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        meter = GpuMeter(pynvml)
    except pynvml.NVMLError as error:
        return None, f"GPUs are not measured: {error}"
    if meter.gpus == 0:
        meter.close()
        return None, "GPUs are not measured: NVML lists none"
    if meter.sample(0.0) is None:
        meter.close()
        return None, "GPUs are not measured: NVML reports neither their energy nor their power"
    return meter, ""


class _Gpu:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._last_mj: int | None = None
        self._last_w: float | None = None
        self._last_at = 0.0
        self._counts = True

    def joules(self, now_s: float) -> float:
        """Return the energy since the last call. Raise NVMLError if it cannot be read."""
        if self._counts:
            try:
                return self._counted()
            except self._nvml.NVMLError_NotSupported:
                self._counts = False
        return self._integrated(now_s)

    def utilization(self) -> float | None:
        with suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu) / 100
        return None

    def memory_share(self) -> float | None:
        with suppress(self._nvml.NVMLError):
            memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
            return float(memory.used) / float(memory.total) if memory.total else None
        return None

    def _counted(self) -> float:
        """A counter that went back was reset with a driver: the energy in between is unknown."""
        now_mj = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        last_mj, self._last_mj = self._last_mj, now_mj
        return 0.0 if last_mj is None or now_mj < last_mj else (now_mj - last_mj) / 1000

    def _integrated(self, now_s: float) -> float:
        watts = self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000
        last_w, last_at = self._last_w, self._last_at
        self._last_w, self._last_at = watts, now_s
        return 0.0 if last_w is None else (last_w + watts) / 2 * (now_s - last_at)


SAMPLE_S = 1.0
JOULES_PER_WH = 3600.0


class NodeMeter:
    """Adds up the meters' figures. ``training`` is set while the trainer trains.

    A meter that fails once is not read again, and energy is unknown from then on: a sum whose parts
    come and go would be meaningless.
    """

    def __init__(self, gpu: GpuMeter | None, rapl: RaplMeter | None) -> None:
        self.training = False
        self._gpu = gpu
        self._rapl = rapl
        now = time.time()
        parts = ((GPU,) if gpu else ()) + ((CPU,) if rapl else ())
        self._reading = NodeMeasurement(
            since=now,
            at=now,
            energy_wh=0.0 if parts else None,
            parts=parts,
            gpus=0 if gpu is None else gpu.gpus,
        )
        self._sampled_at = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if gpu is not None:
            gpu.sample(self._sampled_at)
        if rapl is not None:
            rapl.sample()

    def start(self) -> None:
        """Sample every second from now on, if there is a meter."""
        if self._gpu is not None or self._rapl is not None:
            self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
            self._thread.start()

    def reading(self) -> NodeMeasurement:
        """Return the newest totals without waiting for a meter."""
        return self._reading

    def close(self) -> None:
        """Take a last sample, unless a meter has failed, and stop."""
        if self._thread is not None and not self._closed.is_set():
            self.sample()
        self._closed.set()
        if self._gpu is not None:
            self._gpu.close()

    def sample(self) -> None:
        """Add what was used since the last sample."""
        with self._lock:
            now_s, wall = time.monotonic(), time.time()
            passed_s, self._sampled_at = now_s - self._sampled_at, now_s
            gpu = None if self._gpu is None else self._gpu.sample(now_s)
            cpu_j = 0.0 if self._rapl is None else self._cpu_joules()
            before = self._reading
            if cpu_j is None or (gpu is None and GPU in before.parts):
                self._closed.set()
                self._reading = replace(_shown(before, gpu), power_w=None)
            elif before.energy_wh is not None and passed_s > 0:
                joules = cpu_j + (0.0 if gpu is None else gpu.joules)
                used_wh = joules / JOULES_PER_WH
                self._reading = replace(
                    _shown(before, gpu),
                    at=wall,
                    energy_wh=before.energy_wh + used_wh,
                    training_wh=before.training_wh + (used_wh if self.training else 0.0),
                    training_s=before.training_s + (passed_s if self.training else 0.0),
                    power_w=joules / passed_s,
                )

    def _cpu_joules(self) -> float | None:
        assert self._rapl is not None
        try:
            return self._rapl.sample()
        except (OSError, ValueError):
            return None

    def _run(self) -> None:
        while not self._closed.wait(SAMPLE_S):
            self.sample()


def _shown(reading: NodeMeasurement, gpu: GpuSample | None) -> NodeMeasurement:
    return replace(
        reading,
        gpu_utilization=None if gpu is None else gpu.utilization,
        gpu_memory_share=None if gpu is None else gpu.memory_share,
    )


def open_node_meter() -> tuple[NodeMeter, tuple[str, ...]]:
    """Return the node's meter, and why something cannot be measured: to be printed once."""
    gpu, no_gpu = open_gpu_meter()
    rapl, no_rapl = open_rapl_meter()
    return NodeMeter(gpu, rapl), tuple(text for text in (no_gpu, no_rapl) if text)


ROOT = Path("/sys/class/powercap")


class RaplMeter:
    """Sums the zones that count. ``sample`` raises OSError if one can no longer be read."""

    def __init__(self, zones: list[Path]) -> None:
        """Raise OSError or ValueError if a zone cannot be read."""
        self._zones = [_Zone(zone) for zone in zones]

    def sample(self) -> float:
        """Return the joules since the last sample. Raise OSError or ValueError if a zone fails."""
        return sum(zone.joules() for zone in self._zones)


def open_rapl_meter(root: Path = ROOT) -> tuple[RaplMeter | None, str]:
    """Return the meter, or None and the reason."""
    zones = _zones(root)
    if not zones:
        return None, f"CPUs are not measured: {root} contains no RAPL package"
    try:
        return RaplMeter(zones), ""
    except PermissionError as error:
        return None, f"CPUs are not measured: only root may read {error.filename}"
    except (OSError, ValueError) as error:
        return None, f"CPUs are not measured: {error}"


def _zones(root: Path) -> list[Path]:
    """Return packages and their memory. A package in a second driver's tree is the same one."""
    packages = [z for z in sorted(root.glob("intel-rapl:*")) if _name(z).startswith("package")]
    below = [z for package in packages for z in sorted(root.glob(f"{package.name}:*"))]
    return packages + [zone for zone in below if _name(zone) == "dram"]


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


class _Zone:
    def __init__(self, zone: Path) -> None:
        self._counter = zone / "energy_uj"
        self._range_uj = int((zone / "max_energy_range_uj").read_text())
        self._last_uj = int(self._counter.read_text())

    def joules(self) -> float:
        now_uj = int(self._counter.read_text())
        grown_uj = now_uj - self._last_uj
        self._last_uj = now_uj
        return (grown_uj if grown_uj >= 0 else grown_uj + self._range_uj) / 1e6
