"""How fast a job trains: measured speeds, or FLOPs with a model FLOPs utilization (MFU)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Gpu, InstanceType
from costopt.domain.scaling import kept_speed_up

MFU_SPREAD = 0.3
"""Half of the 90 % interval of a speed from FLOPs on the GPU whose MFU is given: an assumption."""
UNRECORDED = Estimate(1.0, 0.5, 2.0, Basis.PRIOR, "models without a recorded MLPerf time")
"""The MFU of one GPU model over that of another where the record lacks one of them."""


@dataclass(frozen=True, slots=True)
class ThroughputSample:
    """A measured speed: ``gpus`` of one model in total do ``units_per_s``."""

    gpu_model: str
    gpus: int
    units_per_s: float


@dataclass(frozen=True, slots=True)
class Mfu:
    """The share of the peak that a gang of ``gpus`` GPUs of one model reaches.

    ``gpus`` None: a gang of one node, whichever the machine. ``relative`` is that model's MFU over
    that of the catalogue's reference, None where it is not recorded.
    """

    value: float
    gpu_model: str
    gpus: int | None = None
    relative: Estimate | None = None

    def factor_on(self, gpu: Gpu) -> Estimate | None:
        """Return the MFU of ``gpu`` over the stated one; None where it is the same model."""
        if gpu.matches_name(self.gpu_model):
            return None
        return _mfu_ratio(gpu.relative_mfu, self.relative)


def _mfu_ratio(mine: Estimate | None, other: Estimate | None) -> Estimate:
    """The MFU of a GPU model over that of another, by those over the catalogue's reference."""
    if mine is None or other is None:
        return UNRECORDED
    value = mine.value / other.value
    spread = math.hypot(math.log(mine.high / mine.value), math.log(other.high / other.value))
    low, high = value * math.exp(-spread), value * math.exp(spread)
    return Estimate(value, low, high, Basis.MODELLED, mine.source, mine.observed_at)


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast the job runs: measured points, else FLOPs per unit and an MFU.

    ``scaling_efficiency`` is the share of the ideal speed-up that remains at each doubling of the
    GPUs beyond the measured points or the scale of the MFU (1.0 is linear), None where the recorded
    one of the machine's links counts: units/s change by (2 · efficiency) per doubling, up or down.
    With ``independent_gpus``, GPUs do units alone: exactly linear in their number, up to that one.
    ``measured_gpu`` is the model of the largest measured gang, from whose points the speed on other
    models follows; None: it does not.
    """

    points: tuple[ThroughputSample, ...] = ()
    flops_per_unit: float | None = None
    mfu: Mfu | None = None
    scaling_efficiency: float | None = None
    independent_gpus: int | None = None
    measured_gpu: Gpu | None = None

    def units_per_s(self, machine: InstanceType, gpus: int) -> Estimate | None:
        """Return the speed of ``gpus`` on such machines, or None where nothing is known about it.

        Between points the speed is interpolated log-log in the number of GPUs; beyond them it
        follows ``scaling_efficiency``. On another GPU model it is as on the measured one, times the
        ratios of their peaks and of the MFU that their recorded training times show. From FLOPs:
        gpus · peak · MFU / flops_per_unit, the MFU being that of the GPU and scale for which it is
        given, times its factor on this GPU, times the efficiency per doubling from that scale; at
        most 1.
        """
        points = self._points_of(machine.gpu)
        if points:
            return self._from_points(points, machine, gpus)
        if self.measured_gpu is not None:
            return self._from_other_gpu(self.measured_gpu, machine, gpus)
        if self.flops_per_unit is None or self.mfu is None:
            return None
        return self._from_flops(self.flops_per_unit, self.mfu, machine, gpus)

    def _points_of(self, gpu: Gpu) -> list[tuple[int, float]]:
        return sorted((p.gpus, p.units_per_s) for p in self.points if gpu.matches_name(p.gpu_model))

    def _from_other_gpu(self, measured: Gpu, machine: InstanceType, gpus: int) -> Estimate:
        known = self._from_points(self._points_of(measured), machine, gpus)
        mfu = _mfu_ratio(machine.gpu.relative_mfu, measured.relative_mfu)
        peak = machine.gpu.peak_tflops / measured.peak_tflops
        value = known.value * peak * mfu.value
        fall = math.hypot(1 - known.low / known.value, 1 - mfu.low / mfu.value)
        rise = math.hypot(known.high / known.value - 1, mfu.high / mfu.value - 1)
        by = "peak alone, no MLPerf time" if mfu is UNRECORDED else "peak and MLPerf times"
        return Estimate(
            value,
            value * max(0.1, 1 - fall),
            value * (1 + rise),
            Basis.MODELLED,
            f"{known.source}; × {peak * mfu.value:.2f} ({peak * mfu.low:.2f} to "
            f"{peak * mfu.high:.2f}) on {machine.gpu.model} by {by}",
        )

    def _from_flops(
        self, flops_per_unit: float, mfu: Mfu, machine: InstanceType, gpus: int
    ) -> Estimate:
        scaled, per_doubling = self._scaling(machine, mfu.gpus or machine.gpu_count, gpus)
        factor = mfu.factor_on(machine.gpu)
        ratio, fall, rise, on_gpu = 1.0, 0.0, 0.0, ""
        if factor is not None:
            ratio = factor.value
            fall, rise = 1 - factor.low / ratio, factor.high / ratio - 1
            on_gpu = f"; × {ratio:.2f} ({factor.low:.2f} to {factor.high:.2f}) on {factor.source}"
        share = min(1.0, mfu.value * ratio * scaled.value)
        value = gpus * machine.gpu.peak_tflops * 1e12 * share / flops_per_unit
        scale = "one node" if mfu.gpus is None else f"{mfu.gpus} GPU{'s' * (mfu.gpus > 1)}"
        return Estimate(
            value,
            value * max(0.1, 1 - math.hypot(MFU_SPREAD, fall, 1 - scaled.low / scaled.value)),
            value * (1 + math.hypot(MFU_SPREAD, rise, scaled.high / scaled.value - 1)),
            Basis.MODELLED,
            f"MFU {mfu.value:.3g} of {mfu.gpu_model} at {scale}{per_doubling}{on_gpu}",
        )

    def _scaling(self, machine: InstanceType, begin_gpus: int, gpus: int) -> tuple[Estimate, str]:
        """The speed per GPU over that of ``begin_gpus``, and how to say so."""
        kept = kept_speed_up(machine, begin_gpus, gpus, self.scaling_efficiency)
        if begin_gpus == gpus:
            return kept, ""
        each = kept.value ** (1 / math.log2(gpus / begin_gpus))
        source = "" if self.scaling_efficiency else f" ({kept.source})"
        return kept, f", {100 * each:.3g} % of it per doubling{source}"

    def _from_points(
        self, points: list[tuple[int, float]], machine: InstanceType, gpus: int
    ) -> Estimate:
        if self.independent_gpus is not None:
            (known_gpus, speed), gpus = points[0], min(gpus, self.independent_gpus)
            return Estimate.exact(speed * gpus / known_gpus, Basis.MODELLED, "the job's task time")
        for known_gpus, speed in points:
            if known_gpus == gpus:
                return Estimate.exact(speed, Basis.MEASURED, "the job's measured points")
        below = [p for p in points if p[0] < gpus]
        above = [p for p in points if p[0] > gpus]
        if below and above:
            (n0, s0), (n1, s1) = below[-1], above[0]
            share = math.log(gpus / n0) / math.log(n1 / n0)
            value = s0 * (s1 / s0) ** share
            low, high = sorted((s0, s1))
            return Estimate(value, low, high, Basis.MODELLED, "between the job's measured points")
        n0, s0 = below[-1] if below else above[0]
        scaled, per_doubling = self._scaling(machine, n0, gpus)
        linear = s0 * gpus / n0
        return Estimate(
            linear * scaled.value,
            linear * scaled.low,
            linear * scaled.high,
            Basis.MODELLED,
            f"beyond the job's measured points{per_doubling}",
        )
