"""The hindsight optimum: the cheapest run of a job if the future market had been known.

A shortest path over tick, pool and progress; ``optimal_path`` has the recursion. Saves are assumed
to cost no time, so for a job whose saves do, it is a bound that no run undercuts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from costopt.backtesting.optimal_path import (
    Costs,
    PathProblem,
    PoolCostSeries,
    ProgressPath,
    progress_quantum,
)
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import InstanceCatalog


@dataclass(frozen=True, slots=True)
class OptimumPoint:
    """The optimum at a grid point: what it has spent and done, and where it runs from there on."""

    at: datetime
    usd: float
    done_units: float
    pool: Pool | None


@dataclass(frozen=True, slots=True)
class HindsightOptimum:
    """``usd`` can be reached, no run stays below ``low_usd``; they differ only by rounding.

    ``moments`` are the optimum grid point by grid point, where they were asked for.
    """

    usd: float
    low_usd: float
    moments: tuple[OptimumPoint, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether progress could be counted without rounding."""
        return self.low_usd == self.usd


def hindsight_optimum(
    job: Job,
    policy: Policy,
    market: MarketHistory,
    machines: InstanceCatalog,
    *,
    with_moments: bool = False,
) -> HindsightOptimum | None:
    """The optimum, or None where it is not defined.

    It is defined on a grid, for a job that starts at a grid point with a gang of fixed size whose
    speeds in any two pools stand in the same ratio in every phase, and where some run is in time.
    """
    if market.tick_s is None or (job.start_at - market.starts_at) % timedelta(
        seconds=market.tick_s
    ):
        return None
    lanes = _lanes(job, policy, market, machines, market.tick_s)
    if not lanes:
        return None
    course = PathProblem(
        work_units=job.work.amount,
        span_s=(job.deadline_at - job.start_at).total_seconds(),
        tick_s=market.tick_s,
        first_overhead_s=job.startup_s + job.cache_s(),
        overhead_s=job.overhead_s,
    )
    return _optimum(job, lanes, course, with_moments=with_moments)


def _optimum(
    job: Job, lanes: Sequence[PoolCostSeries], course: PathProblem, *, with_moments: bool
) -> HindsightOptimum | None:
    quantum, exact = progress_quantum(lanes, course)
    path = ProgressPath(lanes, course, quantum)
    usd = path.solve()
    if not math.isfinite(usd):
        return None
    low_usd = usd if exact else ProgressPath(lanes, course, quantum, cautious=False).solve()
    moments = tuple(_moments(job, path)) if with_moments else ()
    return HindsightOptimum(usd, low_usd, moments)


def _lanes(
    job: Job, policy: Policy, market: MarketHistory, machines: InstanceCatalog, tick_s: float
) -> list[PoolCostSeries]:
    """Pools that may do the job; none where their speeds differ from phase to phase."""
    nodes = job.resources.min_nodes
    if nodes != job.resources.max_nodes:
        return []
    by_pool: dict[Pool, list[float]] = {}
    for pool in market.pools:
        machine = machines.instance_type(pool)
        if (
            machine is None
            or job.resources.rejection_reason(machine)
            or policy.limits.rejection_reason(pool)
        ):
            continue
        by_phase = [job.gang_units_per_s(machine, nodes, phase) for phase in job.phases]
        known = [speed.value for speed in by_phase if speed is not None]
        if len(known) == len(by_phase):
            by_pool[pool] = known
    if len({_shape(speeds) for speeds in by_pool.values()}) != 1:
        return []
    return _undominated(
        [
            PoolCostSeries(
                pool, _usd_per_tick(market.pools[pool], job, nodes, tick_s), _mean(job, speeds)
            )
            for pool, speeds in by_pool.items()
        ]
    )


def _shape(speeds: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(speed / speeds[0], 9) for speed in speeds)


def _mean(job: Job, speeds: Sequence[float]) -> float:
    """Units per second over all phases."""
    return 1 / math.fsum(
        phase.share / speed for phase, speed in zip(job.phases, speeds, strict=True)
    )


def _undominated(lanes: Sequence[PoolCostSeries]) -> list[PoolCostSeries]:
    """Lanes that are cheaper or faster than each other one in some tick; of equal ones one."""
    kept: list[PoolCostSeries] = []
    for lane in sorted(
        lanes, key=lambda each: (-each.units_per_s, float(np.sum(each.usd_per_tick)))
    ):
        if not any(
            other.units_per_s >= lane.units_per_s
            and np.all(other.usd_per_tick <= lane.usd_per_tick)
            for other in kept
        ):
            kept.append(lane)
    return kept


def _usd_per_tick(history: PoolHistory, job: Job, nodes: int, tick_s: float) -> Costs:
    span_s = (job.deadline_at - job.start_at).total_seconds()
    costs = np.full(math.ceil(span_s / tick_s - 1e-9), np.inf)
    for tick in range(len(costs)):
        state = history.at(job.start_at + timedelta(seconds=tick * tick_s))
        if state is None or state.price_usd_per_hour is None:
            continue
        if (state.nodes_available or 0) >= nodes:
            costs[tick] = state.price_usd_per_hour * nodes * tick_s / 3600
    return costs


def _moments(job: Job, path: ProgressPath) -> Iterator[OptimumPoint]:
    """The path in dollars and units; work is counted from the end of a launch's overhead on."""
    course = path.course
    usd = done_units = debt_s = 0.0
    first = True
    at = job.start_at
    for tick, step in enumerate(path.steps()):
        at = job.start_at + timedelta(seconds=tick * course.tick_s)
        lane = None if step.lane is None else path.lanes[step.lane]
        yield OptimumPoint(at, usd, done_units, None if lane is None else lane.pool)
        if lane is None:
            continue
        if step.launched:
            debt_s = course.first_overhead_s if first else course.overhead_s
            first = False
        useful_s = max(0.0, course.tick_s - debt_s)
        debt_s = max(0.0, debt_s - course.tick_s)
        usd += float(lane.usd_per_tick[tick])
        done_units = min(job.work.amount, done_units + useful_s * lane.units_per_s)
    yield OptimumPoint(at + timedelta(seconds=course.tick_s), usd, done_units, None)
