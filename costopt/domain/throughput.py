"""How fast a job trains: measured speeds, or FLOPs with a model FLOPs utilization (MFU)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Gpu


@dataclass(frozen=True, slots=True)
class ThroughputSample:
    """A measured speed: ``gpus`` of one model in total do ``units_per_s``."""

    gpu_model: str
    gpus: int
    units_per_s: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast the job runs: measured points, else FLOPs per unit and an MFU.

    ``scaling_efficiency`` is the share of the ideal speed-up that remains at each doubling of the
    GPUs beyond the measured points (1.0 is linear): units/s grow by (2 · efficiency) per doubling.
    """

    points: tuple[ThroughputSample, ...] = ()
    flops_per_unit: float | None = None
    mfu: float | None = None
    scaling_efficiency: float = 0.9

    def units_per_s(self, gpu: Gpu, gpus: int) -> Estimate | None:
        """Return the speed of ``gpus`` of this model, or None where nothing is known about it.

        Between points the speed is interpolated log-log in the number of GPUs; beyond them it
        follows ``scaling_efficiency``. From FLOPs: gpus · peak · mfu / flops_per_unit.
        """
        points = sorted(
            ((p.gpus, p.units_per_s) for p in self.points if gpu.matches_name(p.gpu_model)),
        )
        if points:
            return self._from_points(points, gpus)
        if self.flops_per_unit is None or self.mfu is None:
            return None
        one = gpu.peak_tflops * 1e12 * self.mfu / self.flops_per_unit
        value = one * (2 * self.scaling_efficiency) ** math.log2(gpus)
        return Estimate(
            value, 0.7 * value, 1.3 * value, Basis.MODELLED, f"peak {gpu.model} × MFU {self.mfu:g}"
        )

    def _from_points(self, points: list[tuple[int, float]], gpus: int) -> Estimate:
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
        doublings = math.log2(gpus / n0)
        value = s0 * (2 * self.scaling_efficiency) ** doublings
        spread = min(0.5, 0.1 * abs(doublings))
        return Estimate(
            value,
            value * (1 - spread),
            value * (1 + spread),
            Basis.MODELLED,
            f"beyond the job's measured points at {self.scaling_efficiency:.0%} per doubling",
        )
