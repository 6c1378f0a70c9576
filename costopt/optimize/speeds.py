"""How fast each configuration works, and how that differs between the stages of the job."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from costopt.domain.estimate import Estimate
from costopt.domain.market import InstanceType, Offer
from costopt.optimize.caps import cap_speed
from costopt.optimize.demand import Demand, Stage
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.rows import Mask, Rows


@dataclass(frozen=True, slots=True)
class Speeds:
    """Units/s of each row without interruptions, with its 90 % interval: (rows,).

    They are the job's own, else those of the first stage that knows the machine. ``pace``
    (stages, rows) is the mean speed in a stage, evaluation pauses included, over that; 0 where
    nothing is known of the stage on the machine.
    """

    value: Array
    low: Array
    high: Array
    pace: Array


def speeds_of(
    offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, demand: Demand, running: Mask
) -> Speeds:
    """The speeds of all rows; the living gang at the one that its nodes report.

    What the job is slower than predicted holds for the other gangs too: else a slow job would be
    moved, at each plan, to wherever it has not been measured yet.
    """
    numbers: dict[InstanceType, int] = {}
    machine_of = np.array(
        [numbers.setdefault(request.machines[o.pool], len(numbers)) for o in offers], dtype=np.int64
    )
    distinct = list(numbers)
    gangs = np.column_stack((machine_of[rows.first()], rows.nodes))
    gangs, place = np.unique(gangs, axis=0, return_inverse=True)
    figures = [_figures(distinct[number], nodes, demand) for number, nodes in gangs.tolist()]
    shape = (-1, 3 + len(demand.stages))
    found = np.array(figures, dtype=float).reshape(shape)[place.ravel()]
    speed, ratio = found[:, :3] * demand.speed_factor, found[:, 3:].T
    measured = demand.measured_units_per_s
    if measured is not None and math.isfinite(measured) and measured > 0:
        own = _without_evaluations(measured, demand.stages[0])
        speed[running] = (own / np.where(ratio[0] > 0, ratio[0], 1.0))[running, None]
    speed *= cap_speed(rows, [request.powers[offer.pool] for offer in offers])[:, None]
    pace = np.array(
        [_with_evaluations(speed[:, 0], each, stage)
         for each, stage in zip(ratio, demand.stages, strict=True)]
    )  # fmt: skip
    return Speeds(speed[:, 0], speed[:, 1], speed[:, 2], pace)


def stage_speeds(machine: InstanceType, gpus: int, demand: Demand) -> list[Estimate | None]:
    """Units/s of ``gpus`` in each stage between evaluations; None where nothing is known."""
    job = demand.job
    throughputs = [stage.phase.throughput or job.throughput for stage in demand.stages]
    return [_usable(throughput.units_per_s(machine.gpu, gpus)) for throughput in throughputs]


def _figures(machine: InstanceType, nodes: int, demand: Demand) -> tuple[float, ...]:
    """A gang's speed with its interval, then the speed of each stage over it."""
    gpus = machine.gpu_count * nodes
    by_stage = stage_speeds(machine, gpus, demand)
    known = [speed for speed in by_stage if speed is not None]
    base = _usable(demand.job.throughput.units_per_s(machine.gpu, gpus)) or next(iter(known), None)
    if base is None:
        return (0.0,) * (3 + len(by_stage))
    low = min(speed.low / speed.value for speed in known)
    high = max(speed.high / speed.value for speed in known)
    ratios = [0.0 if speed is None else speed.value / base.value for speed in by_stage]
    return base.value, base.value * low, base.value * high, *ratios


def _usable(speed: Estimate | None) -> Estimate | None:
    """The speed unless it is none."""
    return speed if speed is not None and math.isfinite(speed.value) and speed.value > 0 else None


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
