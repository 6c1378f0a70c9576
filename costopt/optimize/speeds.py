"""The speed of each configuration, and how it differs between the stages of the job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Estimate
from costopt.domain.job import Job
from costopt.domain.market import InstanceType
from costopt.optimize.configurations import ConfigurationRows, capped_speed_share
from costopt.optimize.demand import Demand, Stage
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.rates import Array
from costopt.optimize.zone_spreads import Mask


@dataclass(frozen=True, slots=True)
class ConfigurationSpeeds:
    """Units/s of each row without interruptions, with its 90 % interval, shape (rows,).

    They are the job's own, else those of the first stage that knows the machine. ``pace`` has shape
    (stages, rows): the mean speed in a stage, evaluation pauses included, over that speed; 0 where
    nothing is known of the stage on the machine.
    """

    value: Array
    low: Array
    high: Array
    pace: Array


@dataclass(frozen=True, slots=True, eq=False)
class DistinctGangs:
    """The distinct (machine, nodes) of some rows; ``place``, shape (rows,), is each row's number.

    ``capped_speed_share``, shape (rows,), is the share of its speed that a row's power cap leaves.
    """

    distinct: tuple[tuple[InstanceType, int], ...]
    place: NDArray[np.int64]
    cap_speed: Array

    @classmethod
    def of(cls, columns: OfferColumns, rows: ConfigurationRows) -> Self:
        """Return the distinct gangs of the rows."""
        if not len(rows):
            return cls((), np.empty(0, dtype=np.int64), np.empty(0))
        sizes = int(rows.nodes.max()) + 1
        code = columns.machine[rows.first()] * sizes + rows.nodes
        codes, place = np.unique(code, return_inverse=True)
        distinct = [(columns.machines[c // sizes], c % sizes) for c in codes.tolist()]
        return cls(tuple(distinct), place, capped_speed_share(rows, columns))

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the gangs of the rows with these numbers, in this order."""
        return replace(self, place=self.place[rows], cap_speed=self.cap_speed[rows])


def scaling_efficiencies(gangs: DistinctGangs, job: Job) -> tuple[float, ...]:
    """Return the strong-scaling efficiency of each distinct gang; 1 where it is unknown."""
    return tuple(job.scaling_efficiency(*gang) or 1.0 for gang in gangs.distinct)


def speeds_of(gangs: DistinctGangs, demand: Demand, running: Mask) -> ConfigurationSpeeds:
    """Return the speeds of all rows; the living gang's is the one that its nodes report.

    A job that is slower than predicted is taken to be so on the other gangs too: else a slow job
    would be moved, at each plan, to wherever it has not been measured yet.
    """
    figures = [_figures(machine, nodes, demand) for machine, nodes in gangs.distinct]
    by_gang = np.array(figures, dtype=float).reshape(-1, 3 + len(demand.stages)).T
    speed = by_gang[:3, gangs.place] * demand.speed_factor
    ratio = _of_rows(by_gang[3:], gangs.place)
    measured = demand.measured_units_per_s
    if measured is not None and math.isfinite(measured) and measured > 0:
        own = _without_evaluations(measured, demand.stages[0])
        speed[:, running] = (own / np.where(ratio[0] > 0, ratio[0], 1.0))[running]
    speed *= gangs.cap_speed
    return ConfigurationSpeeds(speed[0], speed[1], speed[2], _paces(speed[0], ratio, demand.stages))


def stage_speeds(machine: InstanceType, gpus: int, demand: Demand) -> list[Estimate | None]:
    """Return the units/s of ``gpus`` in each stage between evaluations; None where unknown."""
    job = demand.job
    throughputs = [stage.phase.throughput or job.throughput for stage in demand.stages]
    return [_usable(throughput.units_per_s(machine, gpus)) for throughput in throughputs]


def _figures(machine: InstanceType, nodes: int, demand: Demand) -> tuple[float, ...]:
    """A gang's speed with its interval, then the speed of each stage over it."""
    gpus = machine.gpu_count * nodes
    by_stage = stage_speeds(machine, gpus, demand)
    known = [speed for speed in by_stage if speed is not None]
    base = _usable(demand.job.throughput.units_per_s(machine, gpus)) or next(iter(known), None)
    if base is None:
        return (0.0,) * (3 + len(by_stage))
    low = min(speed.low / speed.value for speed in known)
    high = max(speed.high / speed.value for speed in known)
    ratios = [0.0 if speed is None else speed.value / base.value for speed in by_stage]
    return base.value, base.value * low, base.value * high, *ratios


def _usable(speed: Estimate | None) -> Estimate | None:
    """The speed unless it is none."""
    return speed if speed is not None and math.isfinite(speed.value) and speed.value > 0 else None


def _of_rows(ratio: Array, place: NDArray[np.int64]) -> Array:
    """From (stages, gangs) to (stages, rows); one number where no stage has a speed of its own."""
    if (ratio == 1.0).all():
        return np.broadcast_to(np.float64(1.0), (len(ratio), len(place)))
    return ratio[:, place]


def _paces(speed: Array, ratio: Array, stages: Sequence[Stage]) -> Array:
    """The speeds of all stages over ``speed`` (rows,), evaluation pauses included."""
    if all(stage.phase.evaluate_every is None for stage in stages):
        return ratio
    each = zip(ratio, stages, strict=True)
    return np.array([_with_evaluations(speed, own, stage) for own, stage in each])


def _with_evaluations(speed: Array, ratio: Array, stage: Stage) -> Array:
    """The pace of a stage whose own speed is ``ratio`` times ``speed``."""
    if stage.phase.evaluate_every is None:
        return ratio
    pausing = speed * ratio * stage.phase.evaluation_s / stage.phase.evaluate_every
    return ratio / (1 + pausing)


def _without_evaluations(measured: float, stage: Stage) -> float:
    """The speed between evaluations of a gang that does ``measured`` with them."""
    if stage.phase.evaluate_every is None:
        return measured
    training_share = 1 - measured * stage.phase.evaluation_s / stage.phase.evaluate_every
    return measured / training_share if training_share > 0 else measured
