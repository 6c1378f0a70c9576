"""The cheapest run that somebody who knew the future could have made.

On a market with a grid of g seconds, where what runs at a grid point survives the tick, a run is a
sequence of segments, each a launch in one pool kept for L ticks; it does max(L·g − d, 0) seconds
of work, d being the overhead of a launch. With m launches and K ticks in all, the work done is
K·g − m·d (a segment shorter than d does nothing and no optimum has one). The exact optimum is
therefore a shortest path over (tick, pool or none, m, K) to the first K·g − m·d ≥ W, with cost
price · g per tick, as in the OMNISCIENT bound of "Can't Be Late" (Wu et al., NSDI'24). The last
tick is paid whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import Machines

Costs = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lane:
    """One pool as the path sees it: dollars per tick of the whole gang, inf where it is down."""

    pool: Pool
    usd_per_tick: Costs


def hindsight_usd(
    job: Job, policy: Policy, market: MarketHistory, machines: Machines
) -> float | None:
    """Dollars of the optimum, or None where it is not defined.

    It is defined on a grid, for a job that starts at a grid point with a gang of fixed size whose
    speed is, phase by phase, the same in every pool, and where some run is in time.
    """
    lanes, units_per_s = _lanes(job, policy, market, machines)
    if market.tick_s is None or not lanes or units_per_s is None:
        return None
    if (job.start_at - market.starts_at) % timedelta(seconds=market.tick_s):
        return None
    work_s = job.work.amount / units_per_s
    overhead_s = job.startup_s
    span_s = (job.deadline_at - job.start_at).total_seconds()
    most_launches = _most_launches(lanes, work_s, overhead_s, span_s)
    best = _shortest_path(lanes, work_s, overhead_s, span_s, market.tick_s, most_launches)
    return best if math.isfinite(best) else None


def _lanes(
    job: Job, policy: Policy, market: MarketHistory, machines: Machines
) -> tuple[list[Lane], float | None]:
    nodes = job.resources.min_nodes
    if nodes != job.resources.max_nodes or market.tick_s is None:
        return [], None
    speeds: set[tuple[float, ...]] = set()
    lanes: list[Lane] = []
    for pool, history in market.pools.items():
        machine = machines.machine(pool)
        if machine is None or job.resources.refusal(machine) or policy.limits.refusal(pool):
            continue
        by_phase = [job.gang_units_per_s(machine, nodes, phase) for phase in job.phases]
        known = tuple(round(speed.value, 12) for speed in by_phase if speed is not None)
        if len(known) < len(by_phase):
            continue
        speeds.add(known)
        lanes.append(Lane(pool, _usd_per_tick(history, job, nodes, market.tick_s)))
    if len(speeds) != 1:
        return [], None
    times = [phase.share / speed for phase, speed in zip(job.phases, speeds.pop(), strict=True)]
    return _undominated(lanes), 1 / math.fsum(times)


def _undominated(lanes: Sequence[Lane]) -> list[Lane]:
    """Lanes that are cheaper than each other one in some tick; of equal ones the first."""
    kept: list[Lane] = []
    for lane in sorted(lanes, key=lambda each: float(np.sum(each.usd_per_tick))):
        if not any(np.all(other.usd_per_tick <= lane.usd_per_tick) for other in kept):
            kept.append(lane)
    return kept


def _usd_per_tick(history: PoolHistory, job: Job, nodes: int, tick_s: float) -> Costs:
    span_s = (job.deadline_at - job.start_at).total_seconds()
    costs = np.full(math.ceil(span_s / tick_s), np.inf)
    for tick in range(len(costs)):
        state = history.at(job.start_at + timedelta(seconds=tick * tick_s))
        if state is None or state.price_usd_per_hour is None:
            continue
        if (state.nodes_available or 0) >= nodes:
            costs[tick] = state.price_usd_per_hour * nodes * tick_s / 3600
    return costs


def _most_launches(lanes: Sequence[Lane], work_s: float, overhead_s: float, span_s: float) -> int:
    """No optimum launches more often than its slack allows.

    Nor more than twice in an epoch, in which no pool comes, goes or changes its price: within it
    the order of the ticks is free but for the pools that it is entered and left in. Free launches
    need not be counted.
    """
    if overhead_s <= 0:
        return 1
    changes = np.zeros(len(lanes[0].usd_per_tick) - 1, dtype=bool)
    for lane in lanes:
        changes |= lane.usd_per_tick[1:] != lane.usd_per_tick[:-1]
    epochs = int(np.count_nonzero(changes)) + 1
    by_slack = (span_s - work_s) / overhead_s
    return int(max(1, min(by_slack + 1e-9, 2 * epochs + 1)))


def _shortest_path(
    lanes: Sequence[Lane],
    work_s: float,
    overhead_s: float,
    span_s: float,
    tick_s: float,
    most_launches: int,
) -> float:
    """The optimum; states that no longer leave room for all the work are not followed."""
    launches = np.arange(most_launches + 1)
    needed = np.ceil((work_s + launches * overhead_s) / tick_s - 1e-9).astype(int)
    ticks = math.ceil(span_s / tick_s - 1e-9)
    width = int(needed.max()) + 1
    idle = np.full((most_launches + 1, width), np.inf)
    idle[0, 0] = 0.0
    running = [np.full_like(idle, np.inf) for _ in lanes]
    best = np.inf
    for tick in range(ticks):
        low = max(0, int(needed.min()) - (ticks - tick))
        seen = slice(low, min(tick + 1, width - 1))
        cheapest = np.minimum.reduce([idle[:, seen], *(run[:, seen] for run in running)])
        idle[:, seen] = cheapest
        for lane, run in zip(lanes, running, strict=True):
            _step(lane.usd_per_tick[tick], run, cheapest, seen, free=overhead_s <= 0)
        best = min(best, _finished(running, needed, work_s, overhead_s, span_s, tick, tick_s))
    return float(best)


def _step(usd: float, running: Costs, cheapest: Costs, seen: slice, *, free: bool) -> None:
    """One tick in a pool, in place: go on, or launch from the cheapest state there was."""
    if not math.isfinite(usd):
        running[:, seen.start : seen.stop + 1] = np.inf
        return
    after = running[:, seen].copy()
    np.minimum(after[1:], cheapest[:-1], out=after[1:])
    if free:
        np.minimum(after[-1], cheapest[-1], out=after[-1])
    running[:, seen.start] = np.inf
    running[:, seen.start + 1 : seen.stop + 1] = after + usd


def _finished(
    running: Sequence[Costs],
    needed: npt.NDArray[np.int_],
    work_s: float,
    overhead_s: float,
    span_s: float,
    tick: int,
    tick_s: float,
) -> float:
    """The cheapest state that has done all the work within this tick and the deadline."""
    best = math.inf
    for launches in range(1, len(needed)):
        ticks = needed[launches]
        in_tick_s = work_s + launches * overhead_s - (ticks - 1) * tick_s
        if tick * tick_s + in_tick_s > span_s + 1e-6:
            continue
        best = min(best, *(float(run[launches, ticks]) for run in running))
    return best
