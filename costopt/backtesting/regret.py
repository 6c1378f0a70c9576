"""Where the dollars of a run were lost against the hindsight optimum, decision by decision.

With V(s) the least dollars from state s to the end by someone who knows the market, and c what a
run spent in the tick that led it from s to s′, the tick lost c + V(s′) − V(s): nothing where the
optimum could have done the same from there. V is that of ``optimal_path``, 0 where the work is
done, so all ticks sum to what the run cost beyond the optimum. The loss of a tick counts by what
the run did in it, and what the optimum would have done from where the run was:

- waited: it had no gang; the optimum runs
- on_demand_too_soon: it was on uninterruptible capacity; the optimum waits
- on_demand_too_long: it was on uninterruptible capacity; the optimum is on spot
- wasted_spot: it was on spot; the optimum waits, or is on uninterruptible capacity
- wrong_pool: the optimum is in another pool of the kind, or has another size
- lost_work: what the work was worth that has to be done again
- other: it did as the optimum; longer starts, saves, two gangs at a time, rounding

A gang in several pools is taken for its part that was launched last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from costopt.backtesting.hindsight import HindsightPaths
from costopt.backtesting.optimal_path import PathState, PathValues
from costopt.backtesting.replay import ReplayResult
from costopt.domain.events import WorkLost
from costopt.domain.job import Job
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.summary import spend_at

WAITED = "waited_usd"
TOO_SOON = "on_demand_too_soon_usd"
TOO_LONG = "on_demand_too_long_usd"
WASTED_SPOT = "wasted_spot_usd"
WRONG_POOL = "wrong_pool_usd"
LOST_WORK = "lost_work_usd"
OTHER = "other_usd"
CATEGORIES = (WAITED, TOO_SOON, TOO_LONG, WASTED_SPOT, WRONG_POOL, LOST_WORK, OTHER)


def measure_regret(run: ReplayResult, job: Job, paths: HindsightPaths) -> dict[str, Any]:
    """Return the dollars that a run lost, in whole micro-dollars, by category and their sum,
    ``regret_usd``: those of the run less those of the optimum.

    Empty where the run did not finish or there is no optimum.
    """
    finished_at, best = run.summary.finished_at, paths.optimum()
    if finished_at is None or best is None:
        return {}
    total = run.summary.usd_micros - round(1e6 * best.usd)
    lost = _Losses(_RecordedRun(run, job), paths).until(finished_at)
    known = {category: round(lost[category]) for category in CATEGORIES if category != OTHER}
    micros = {"regret_usd": total, **known, OTHER: total - sum(known.values())}
    return {name: each / 1e6 for name, each in micros.items()}


class _RecordedRun:
    """The states of a run by its ledger."""

    def __init__(self, run: ReplayResult, job: Job) -> None:
        account = JobAccount(job.name)
        for recorded in run.events:
            account.apply(recorded.event)
        self.start_at, self.end_at = job.start_at, run.summary.now
        curves = account.curves(self.end_at)
        self._spend, self._spend_times = curves.spend, [point.at for point in curves.spend]
        self._done_s = [self._s(point.at) for point in curves.progress]
        self._done_units = [point.done_units for point in curves.progress]
        self._nodes = sorted(account.intervals(self.end_at), key=lambda node: node.launched_at)
        self._lost = [e.event for e in run.events if isinstance(e.event, WorkLost)]

    def usd_micros(self, at: datetime) -> int:
        """Dollars until then."""
        return spend_at(self._spend, self._spend_times, at).usd_micros

    def done_units(self, at: datetime) -> float:
        """Units that are done; at a loss, those that remain."""
        return float(np.interp(self._s(at), self._done_s, self._done_units, left=0.0))

    def _s(self, at: datetime) -> float:
        return (at - self.start_at).total_seconds()

    def lost_units(self, begin: datetime, end: datetime) -> float:
        """Units lost after ``begin``, until ``end``."""
        return sum(event.units for event in self._lost if begin < event.at <= end)

    def gang(self, begin: datetime, end: datetime) -> list[NodeInterval]:
        """Nodes of the pool that was launched last, of those that ran in a tick."""
        nodes = (node for node in self._nodes if node.launched_at < end)
        alive = [node for node in nodes if (node.ended_at or end) > begin]
        return [node for node in alive if node.pool == alive[-1].pool]


class _Losses:
    """Micro-dollars of one run by category."""

    def __init__(self, run: _RecordedRun, paths: HindsightPaths) -> None:
        self._run, self._path, self._gangs = run, paths.path, paths.gangs
        self._tick = timedelta(seconds=paths.path.problem.tick_s)

    def until(self, finished_at: datetime) -> Mapping[str, float]:
        """Return what was lost until the work was done and paid.

        What a tick seems to have lost by rounding, and a later one to have won back, is not lost:
        before a tick, the run costs the least that it seems to cost then or later.
        """
        lost = dict.fromkeys(CATEGORIES, 0.0)
        least = float(self._run.usd_micros(self._run.end_at))
        for before, cause, worth in reversed(list(self._ticks(finished_at))):
            usd_micros = max(0.0, least - before)
            again = max(0.0, min(worth, usd_micros))
            lost[LOST_WORK] += again
            lost[cause] += usd_micros - again
            least -= usd_micros
        return lost

    def _ticks(self, finished_at: datetime) -> Iterator[tuple[float, str, float]]:
        """Yield what the run had spent before each tick and would cost from there at least, why
        that is more after it, and how much of that the work is worth that was lost in it."""
        every = self._path.values()
        at, state = self._run.start_at, PathState(0.0)
        least = self._least(next(every), at, state)
        for number, values in enumerate(every):
            end = at + self._tick
            after = self._state(end)
            later, again = self._least(values, end, after), 0.0
            if finished_at <= end:
                later = math.inf
            elif units := self._run.lost_units(at, end):
                kept = replace(after, done_units=after.done_units + units)
                again = later - self._least(values, end, kept) if later < math.inf else 0.0
            cause = self._cause(number, values, state, at) if later > least + 0.5 else OTHER
            yield least, cause, again
            if finished_at <= end:
                return
            at, state, least = end, after, later

    def _least(self, values: PathValues, at: datetime, state: PathState) -> float:
        return self._run.usd_micros(at) + 1e6 * self._path.usd_from(values, state)

    def _state(self, at: datetime) -> PathState:
        """The state before the decision of an instant."""
        nodes, done_units = self._run.gang(at - timedelta.resolution, at), self._run.done_units(at)
        index = self._gangs.get((nodes[0].pool, len(nodes))) if nodes else None
        if index is None:
            return PathState(done_units)
        gang, begun_at = self._path.gangs[index], nodes[-1].launched_at
        overhead = gang.launch if self._run.done_units(begun_at) > 0 else gang.first_launch
        start_s = overhead.seconds - (at - begun_at).total_seconds()
        return PathState(done_units, index, max(0.0, start_s))

    def _cause(self, tick: int, ahead: PathValues, state: PathState, begin: datetime) -> str:
        nodes = self._run.gang(begin, begin + self._tick)
        index = self._path.best_gang(tick, ahead, state)
        best = None if index is None else self._path.gangs[index]
        is_spot = None if best is None else best.pool.capacity_type.is_interruptible
        if not nodes:
            return OTHER if best is None else WAITED
        was_spot = nodes[0].pool.capacity_type.is_interruptible
        if was_spot != is_spot:
            return WASTED_SPOT if was_spot else (TOO_LONG if is_spot else TOO_SOON)
        is_same = best is not None and (nodes[0].pool, len(nodes)) == (best.pool, best.nodes)
        return OTHER if is_same else WRONG_POOL
