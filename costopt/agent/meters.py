"""The meters of one node, read beside the agent's loop: NVML for its GPUs, RAPL for its CPUs; those
that are read over HTTP are in ``network_meters``.

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

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from costopt.protocol.messages import CPU, GPU, NODE, NodeMeasurement


@dataclass(frozen=True, slots=True)
class MeterSample:
    """``joules`` since the last sample, and the GPUs' shares of 0–1, None where unknown."""

    joules: float
    utilization: float | None = None
    memory_share: float | None = None


class Meter(Protocol):
    """An instrument. ``error`` is why it is read no more, "" while it works."""

    @property
    def error(self) -> str: ...

    @property
    def gpus(self) -> int: ...

    @property
    def interval_s(self) -> float: ...

    def sample(self, now_s: float) -> MeterSample | None:
        """Return the change since the last sample, at monotonic ``now_s``.

        None where it does not answer now, or has failed: then ``error`` says why.
        """
        ...

    def close(self) -> None: ...


LOCAL_INTERVAL_S = 1.0


class GpuMeter:
    """A meter of ``gpus`` GPUs by NVML. It fails with the first GPU that cannot be read."""

    interval_s = LOCAL_INTERVAL_S

    def __init__(self, nvml: Any) -> None:
        """Use ``nvml``, the initialized module pynvml. Raise its NVMLError if a GPU fails."""
        self.error = ""
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._gpus = [_Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        self.gpus = count

    def sample(self, now_s: float) -> MeterSample | None:
        """Return the change since the last sample; None if a GPU fails."""
        try:
            joules = sum(gpu.joules(now_s) for gpu in self._gpus)
        except self._nvml.NVMLError as error:
            self.error = f"GPUs are not measured any more: {error}"
            return None
        used = [share for gpu in self._gpus if (share := gpu.utilization()) is not None]
        full = [share for gpu in self._gpus if (share := gpu.memory_share()) is not None]
        return MeterSample(joules, sum(used) / len(used) if used else None, max(full, default=None))

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
            # GPUs before Volta have no counter.
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


JOULES_PER_WH = 3600.0
CROSS_CHECK_S = 60.0
MIN_NODE_RATIO, MAX_NODE_RATIO = 0.9, 30.0
"""What a whole-node meter may read over the GPUs' and CPUs' meters. A node draws more than its
parts, idle ones some 3 times as much (MLPerf power logs); a wrong unit is a factor of 1000."""


class NodeMeter:
    """Adds up the meters' figures. ``training`` is set while the trainer trains.

    A meter of the whole node replaces the sum of the others, which then only check it. A meter that
    fails is not read again, and energy is unknown from then on: a sum whose parts come and go would
    be meaningless. What one that does not answer now has counted meanwhile is added when it does.
    """

    def __init__(
        self, gpu: Meter | None = None, cpu: Meter | None = None, node: Meter | None = None
    ) -> None:
        self.training = False
        named = {GPU: gpu, CPU: cpu, NODE: node}
        self._meters = {part: meter for part, meter in named.items() if meter is not None}
        parts = (NODE,) if node is not None else tuple(self._meters)
        self._unsettled = dict.fromkeys(self._meters, 0.0)
        self._total_j = dict.fromkeys(self._meters, 0.0)
        now = time.time()
        self._reading = NodeMeasurement(
            since=now,
            at=now,
            energy_wh=0.0 if parts else None,
            parts=parts,
            gpus=0 if gpu is None else gpu.gpus,
        )
        self._began_s = self._sampled_at = time.monotonic()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        for meter in self._meters.values():
            meter.sample(self._sampled_at)

    def start(self) -> None:
        """Sample from now on, if there is a meter."""
        if self._meters:
            self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
            self._thread.start()

    def reading(self) -> NodeMeasurement:
        """Return the newest totals without waiting for a meter."""
        return self._reading

    def close(self) -> None:
        """Stop, after a last sample if no meter has failed or would have to be waited for."""
        if self._thread is not None and not self._closed.is_set() and self._is_local():
            self.sample()
        self._closed.set()
        for meter in self._meters.values():
            meter.close()

    def sample(self) -> None:
        """Add what was used since the last sample."""
        with self._lock:
            now_s, wall, before = time.monotonic(), time.time(), self._reading
            samples = {part: meter.sample(now_s) for part, meter in self._meters.items()}
            for part, sample in samples.items():
                self._unsettled[part] += 0.0 if sample is None else sample.joules
            failed = [text for part in before.parts if (text := self._meters[part].error)]
            if failed:
                self._end(_shown(before, samples.get(GPU)), failed[0])
                return
            passed_s = now_s - self._sampled_at
            if passed_s <= 0 or any(samples[part] is None for part in before.parts):
                return
            self._sampled_at = now_s
            used_wh = sum(self._unsettled[part] for part in before.parts) / JOULES_PER_WH
            for part, joules in self._unsettled.items():
                self._total_j[part] += joules
                self._unsettled[part] = 0.0
            self._reading = replace(
                _shown(before, samples.get(GPU)),
                at=wall,
                energy_wh=(before.energy_wh or 0.0) + used_wh,
                training_wh=before.training_wh + (used_wh if self.training else 0.0),
                training_s=before.training_s + (passed_s if self.training else 0.0),
            )
            wrong = self._contradiction(now_s - self._began_s)
            if wrong:
                self._end(replace(self._reading, energy_wh=None), wrong)

    def _contradiction(self, passed_s: float) -> str:
        """Return why the whole-node meter cannot be right beside the others, "" if it can."""
        node_j = self._total_j.get(NODE)
        parts_j = sum(joules for part, joules in self._total_j.items() if part != NODE)
        if node_j is None or parts_j <= 0 or passed_s < CROSS_CHECK_S:
            return ""
        if MIN_NODE_RATIO * parts_j <= node_j <= MAX_NODE_RATIO * parts_j:
            return ""
        return (
            f"the node is not measured: its meter reads {node_j / passed_s:.4g} W where its GPUs "
            f"and CPUs alone draw {parts_j / passed_s:.4g} W; check its unit and the chassis"
        )

    def _end(self, reading: NodeMeasurement, why: str) -> None:
        self._closed.set()
        self._reading = reading
        print(why, file=sys.stderr, flush=True)  # noqa: T201

    def _is_local(self) -> bool:
        return all(meter.interval_s <= LOCAL_INTERVAL_S for meter in self._meters.values())

    def _run(self) -> None:
        interval_s = max(meter.interval_s for meter in self._meters.values())
        while not self._closed.wait(interval_s):
            self.sample()


def _shown(reading: NodeMeasurement, gpu: MeterSample | None) -> NodeMeasurement:
    return replace(
        reading,
        gpu_utilization=None if gpu is None else gpu.utilization,
        gpu_memory_share=None if gpu is None else gpu.memory_share,
    )


ROOT = Path("/sys/class/powercap")


class RaplMeter:
    """Sums the zones that count. It fails with the first one that can no longer be read."""

    gpus = 0
    interval_s = LOCAL_INTERVAL_S

    def __init__(self, zones: list[Path]) -> None:
        """Raise OSError or ValueError if a zone cannot be read."""
        self.error = ""
        self._zones = [_Zone(zone) for zone in zones]

    def sample(self, now_s: float) -> MeterSample | None:  # noqa: ARG002 - it counts
        """Return the joules since the last sample; None if a zone fails."""
        try:
            return MeterSample(sum(zone.joules() for zone in self._zones))
        except (OSError, ValueError) as error:
            self.error = f"CPUs are not measured any more: {error}"
            return None

    def close(self) -> None:
        """Nothing is open between samples."""


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
    # The kernel's driver has this name on AMD's processors, too.
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
        # Beyond its range the counter restarts at 0.
        return (grown_uj if grown_uj >= 0 else grown_uj + self._range_uj) / 1e6
