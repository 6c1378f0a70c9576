"""Energy, power, utilization and memory of all NVIDIA GPUs of the node, through NVML.

The total-energy counter (mJ since the driver was loaded; Volta and later) is used where it exists;
elsewhere the power (mW, the mean of the last second on Ampere and later) is integrated over time.
(NVIDIA Management Library API reference, nvmlDeviceGetTotalEnergyConsumption, -PowerUsage.)
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuSample:
    """``joules`` since the sample before; shares are 0–1; None where NVML does not tell."""

    joules: float
    utilization: float | None
    memory_share: float | None


class GpuMeter:
    """``gpus`` is how many there are. A GPU whose energy cannot be read makes ``ok`` False."""

    def __init__(self, nvml: Any) -> None:
        """``nvml`` is the initialized module pynvml. Raises its NVMLError."""
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._gpus = [_Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        self.gpus = count

    def sample(self, now_s: float) -> GpuSample | None:
        """What changed since the last sample, at monotonic ``now_s``; None where a GPU fails."""
        try:
            joules = sum(gpu.joules(now_s) for gpu in self._gpus)
        except self._nvml.NVMLError:
            return None
        used = [share for gpu in self._gpus if (share := gpu.utilization()) is not None]
        full = [share for gpu in self._gpus if (share := gpu.memory_share()) is not None]
        return GpuSample(joules, sum(used) / len(used) if used else None, max(full, default=None))

    def close(self) -> None:
        """Let go of the library."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_gpu_meter() -> tuple[GpuMeter | None, str]:
    """The meter, or None and why there is none: no library, no driver, no GPU."""
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
        return None, "GPUs are not measured: NVML tells neither their energy nor their power"
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
        """Since the last call. Raises NVMLError."""
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
        """A counter that went back began anew with a driver: the time in between is not known."""
        now_mj = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        last_mj, self._last_mj = self._last_mj, now_mj
        return 0.0 if last_mj is None or now_mj < last_mj else (now_mj - last_mj) / 1000

    def _integrated(self, now_s: float) -> float:
        watts = self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000
        last_w, last_at = self._last_w, self._last_at
        self._last_w, self._last_at = watts, now_s
        return 0.0 if last_w is None else (last_w + watts) / 2 * (now_s - last_at)
