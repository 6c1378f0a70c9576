"""The hindsight optimum: the cheapest run of a job if the future market had been known.

A shortest path over tick, gang and progress; ``optimal_path`` has the recursion. It knows every
gang size in every pool that policy and job allow, the phases, and what moving data to a gang's
region takes and costs. It is a bound that no run on one pool at a time undercuts where it leaves
something out: saves take no time, one is sent home per launch, and none costs storage; phases that
may not pause may; the tasks of an array are divisible, and its nodes join and leave at no loss; a
launch in a pool that makes one wait does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from costopt.backtesting.optimal_path import ProgressPath
from costopt.backtesting.path_problem import (
    Costs,
    GangCostSeries,
    Overhead,
    PathProblem,
    progress_quantum,
)
from costopt.backtesting.replay import replay_tick_s
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Job, Phase
from costopt.domain.market import InstanceType, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import InstanceCatalog
from costopt.domain.transfers import (
    DataTransfer,
    TransferPrices,
    cache_transfers,
    save_transfer,
    start_transfers,
    volume_usd_per_hour,
)


@dataclass(frozen=True, slots=True)
class OptimumPoint:
    """The optimum at a tick: what it has spent and done, and where it runs from there on."""

    at: datetime
    usd: float
    done_units: float
    pool: Pool | None


@dataclass(frozen=True, slots=True)
class HindsightOptimum:
    """``usd`` can be reached, no run stays below ``low_usd``; they differ only by rounding.

    ``moments`` are the optimum tick by tick, where they were asked for.
    """

    usd: float
    low_usd: float
    moments: tuple[OptimumPoint, ...] = ()


def hindsight_optimum(
    job: Job,
    policy: Policy,
    market: MarketHistory,
    machines: InstanceCatalog,
    transfers: TransferPrices | None = None,
    *,
    tick_s: float | None = None,
    with_moments: bool = False,
) -> HindsightOptimum | None:
    """Return the optimum of runs that decide every tick from the job's start on.

    None where no run is in time. ``tick_s`` is that of the replays, by default as for these.
    """
    paths = hindsight_paths(job, policy, market, machines, transfers, tick_s=tick_s)
    best = None if paths is None else paths.optimum()
    if with_moments and best is not None and paths is not None:
        return replace(best, moments=tuple(_moments(job, paths.path)))
    return best


@dataclass(frozen=True, slots=True)
class HindsightPaths:
    """The ``path`` of the optimum, and that of its ``bound`` where progress is rounded.

    ``gangs`` is the index among the path's gangs of each pool and size: its own, or that of a gang
    which is as good in every tick.
    """

    path: ProgressPath
    bound: ProgressPath | None
    gangs: Mapping[tuple[Pool, int], int]

    def optimum(self) -> HindsightOptimum | None:
        """Return its dollars; None where no run is in time."""
        usd = self.path.solve()
        low_usd = usd if self.bound is None else self.bound.solve()
        if not math.isfinite(low_usd):
            return None
        return HindsightOptimum(usd if math.isfinite(usd) else low_usd, low_usd)


def hindsight_paths(
    job: Job,
    policy: Policy,
    market: MarketHistory,
    machines: InstanceCatalog,
    transfers: TransferPrices | None = None,
    *,
    tick_s: float | None = None,
) -> HindsightPaths | None:
    """Return what ``hindsight_optimum`` solves; None where some phase has no gang."""
    problem = PathProblem(
        stage_units=tuple(phase.share * job.work.amount for phase in job.phases),
        span_s=(job.until_at - job.start_at).total_seconds(),
        tick_s=tick_s or replay_tick_s(market),
    )
    every = list(_gangs(job, policy, market, machines, transfers, problem))
    gangs = _undominated(every)
    if not gangs or not all(any(stage) for stage in zip(*(g.allowed for g in gangs), strict=True)):
        return None
    quantum, exact = progress_quantum(gangs, problem)
    return HindsightPaths(
        ProgressPath(gangs, problem, quantum),
        None if exact else ProgressPath(gangs, problem, quantum, cautious=False),
        {(gang.pool, gang.nodes): _stand_in(gang, gangs) for gang in every},
    )


def _stand_in(gang: GangCostSeries, kept: Sequence[GangCostSeries]) -> int:
    own = next((i for i, each in enumerate(kept) if each is gang), None)
    return next(i for i, each in enumerate(kept) if _beats(each, gang)) if own is None else own


def _gangs(
    job: Job,
    policy: Policy,
    market: MarketHistory,
    machines: InstanceCatalog,
    transfers: TransferPrices | None,
    problem: PathProblem,
) -> Iterator[GangCostSeries]:
    """Every gang that the policy and some phase of the job allow, at a known speed and price."""
    for pool, history in market.pools.items():
        machine = machines.instance_type(pool)
        if (
            machine is None
            or job.resources.rejection_reason(machine)
            or policy.limits.rejection_reason(pool)
        ):
            continue
        volume_usd = volume_usd_per_hour(pool, transfers) or 0.0
        capacity = _PoolCapacity(history, job.start_at, problem, volume_usd)
        for nodes in job.gang_sizes(machine):
            overheads = _overheads(job, pool, machine, nodes, transfers)
            speeds = [_known_speed(job, machine, nodes, phase) for phase in job.phases]
            allowed = [
                speed is not None and phase.min_nodes <= nodes <= phase.max_nodes
                for speed, phase in zip(speeds, job.phases, strict=True)
            ]
            if not overheads or not any(allowed):
                continue
            slowest = min(speed for speed in speeds if speed is not None)
            usd_per_tick, lives_s = capacity.of_gang(nodes)
            yield GangCostSeries(
                pool,
                nodes,
                usd_per_tick,
                lives_s,
                tuple(speed or slowest for speed in speeds),
                tuple(allowed),
                *overheads,
            )


def _known_speed(job: Job, machine: InstanceType, nodes: int, phase: Phase) -> float | None:
    speed = job.gang_units_per_s(machine, nodes, phase)
    return None if speed is None or speed.value <= 0 else speed.value


def _overheads(
    job: Job, pool: Pool, machine: InstanceType, nodes: int, transfers: TransferPrices | None
) -> tuple[Overhead, Overhead, Overhead, Overhead] | None:
    """Of a launch, the first launch, fewer and more nodes; None where a price is unknown.

    Nodes that stay are started, and hold the data; of those that join, one pays for its cache.
    Nodes of an array do not wait for each other.
    """
    job = job.on_gang(machine, nodes)
    starts_s = job.startup_s + job.cache_s(machine)
    restore_s = 0.0 if job.array is not None else job.checkpoint.restore_s
    sent = save_transfer(job, pool, transfers)
    save_usd = _usd(() if sent is None else (sent,))
    cache_usd = [_usd(cache_transfers(job, pool, count, transfers)) for count in (1, nodes)]
    found = []
    for restoring in (True, False):
        moves = start_transfers(job, pool, transfers, restoring=restoring)
        usd = _usd(moves) + save_usd + cache_usd[1]
        fetch_s = 3600 * sum(move.hours(machine) for move in moves)
        found.append(Overhead(starts_s + fetch_s + restore_s * restoring, usd))
    launch, first = found
    if not math.isfinite(launch.usd):
        return None
    if job.array is not None:
        return launch, first, Overhead(0.0), Overhead(0.0)
    grow = Overhead(starts_s + restore_s, save_usd + cache_usd[0])
    return launch, first, Overhead(restore_s, save_usd), grow


def _usd(moves: Sequence[DataTransfer]) -> float:
    """Dollars, inf where a price is unknown."""
    return sum(math.inf if move.usd is None else move.usd for move in moves)


class _PoolCapacity:
    """What a pool's record says of the ticks of a run: price and nodes at their starts, and drops
    within them. Each node's root volume costs ``volume_usd`` an hour besides."""

    def __init__(
        self, history: PoolHistory, start_at: datetime, problem: PathProblem, volume_usd: float
    ) -> None:
        tick, ticks = timedelta(seconds=problem.tick_s), problem.ticks
        self._tick_s = problem.tick_s
        starts = [start_at + n * tick for n in range(ticks)]
        states = [history.at(at) for at in starts]
        self._usd_per_hour = np.array(
            [math.inf if s is None or s.price_usd_per_hour is None
             else s.price_usd_per_hour + volume_usd for s in states]
        )  # fmt: skip
        self._nodes = np.array([0 if s is None else s.nodes_available or 0 for s in states])
        self._drops: list[tuple[int, float, int]] = []
        for state in history.between(start_at, start_at + ticks * tick):
            number, into = divmod(state.starts_at - start_at, tick)
            if into and state.nodes_available is not None:
                self._drops.append((number, into.total_seconds(), state.nodes_available))

    def of_gang(self, nodes: int) -> tuple[Costs, Costs]:
        """Dollars of each tick, inf where the gang cannot run at its start, and how long it lives.

        It pays the price at the tick's start, as a node is billed at what the engine observed.
        """
        lives_s = np.full(len(self._nodes), self._tick_s)
        for number, into_s, left in self._drops:
            if left < nodes:
                lives_s[number] = min(lives_s[number], into_s)
        usd = np.where(self._nodes >= nodes, self._usd_per_hour * nodes * lives_s / 3600, np.inf)
        return usd, lives_s


def _undominated(gangs: Sequence[GangCostSeries]) -> list[GangCostSeries]:
    """Gangs without pools where another pool is as fast, cheap and lasting at each size."""
    by_pool: dict[Pool, list[GangCostSeries]] = {}
    for gang in gangs:
        by_pool.setdefault(gang.pool, []).append(gang)
    kept: list[list[GangCostSeries]] = []
    for sizes in sorted(by_pool.values(), key=_order):
        if not any(all(any(_beats(o, g) for o in other) for g in sizes) for other in kept):
            kept.append(sizes)
    return [gang for sizes in kept for gang in sizes]


def _order(sizes: Sequence[GangCostSeries]) -> tuple[float, float]:
    costs = sum(float(np.sum(gang.usd_per_tick)) for gang in sizes)
    return -max(max(gang.speeds) for gang in sizes), costs


def _beats(one: GangCostSeries, other: GangCostSeries) -> bool:
    """Whether a run on ``other`` could as well be on ``one``."""
    pairs = zip(one.overheads, other.overheads, strict=True)
    return (
        one.nodes == other.nodes
        and all(a >= b for a, b in zip(one.speeds, other.speeds, strict=True))
        and all(a >= b for a, b in zip(one.allowed, other.allowed, strict=True))
        and all(a.seconds <= b.seconds and a.usd <= b.usd for a, b in pairs)
        and bool(np.all(one.usd_per_tick <= other.usd_per_tick))
        and bool(np.all((one.lives_s >= other.lives_s) | np.isinf(other.usd_per_tick)))
    )


def _moments(job: Job, path: ProgressPath) -> Iterator[OptimumPoint]:
    """The path in dollars and units; work is counted from the end of a launch's overhead on."""
    scale, tick_s = path.scale, path.problem.tick_s
    usd = progress = debt_s = 0.0
    at = job.start_at
    for tick, step in enumerate(path.steps()):
        at = job.start_at + timedelta(seconds=tick * tick_s)
        gang = None if step.gang is None else path.gangs[step.gang]
        done = scale.units(progress)
        yield OptimumPoint(at, usd, done, None if gang is None else gang.pool)
        if gang is None:
            continue
        if step.begins is not None:
            debt_s = step.begins.seconds
            usd += step.begins.usd
        lives_s = float(gang.lives_s[tick])
        progress = float(scale.after(gang, np.array([progress]), max(0.0, lives_s - debt_s))[0])
        progress = min(scale.end, progress)
        debt_s = max(0.0, debt_s - lives_s)
        usd += float(gang.usd_per_tick[tick])
    yield OptimumPoint(at + timedelta(seconds=tick_s), usd, scale.units(progress), None)
