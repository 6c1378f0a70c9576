"""The cheapest way through gangs that come, go and change their price: a path over progress.

In ticks of g seconds, a run is a sequence of segments, each a launch of one gang i (so many nodes
of a pool, at v_i units of work per second) kept for L ticks; it does max(L·g − d, 0)·v_i units, d
being the overhead of the launch. A segment shorter than d does nothing, so no optimum has one, and
the work of a segment may be counted as a debt d·v_i at its launch and a gain g·v_i per tick. With
C_t(w) the least dollars from tick t to the end where w units are done and nothing runs, R_t(i, w)
the same where gang i runs, p_t(i) the price of its tick and l_i that of moving data to its launch:

    run_t(i, w) = p_t(i) + R_{t+1}(i, w + g·v_i),  or p_t(i) where the tick ends the work
    C_t(w)      = min(C_{t+1}(w), min_i l_i + run_t(i, w − d·v_i))
    R_t(i, w)   = min(run_t(i, w), C_t(w), min_j l_ij + run_t(j, w − d_ij·v_j))

where j are other sizes in the pool of i, to which a gang is changed at less overhead. Where gang i
is gone, run_t(i, ·) is ∞; where it goes within a tick, its gain and its price end there. A tick in
which the work ends is paid whole. The first launch of all has an overhead of its own, since it
restores nothing. On equal speeds and one pool this is the OMNISCIENT bound of "Can't Be Late" (Wu
et al., NSDI'24, §5).

Progress is counted in levels of q (``path_problem``). Where q divides every gain and debt the path
is exact. Where it does not, a gain of a levels per tick is ⌊a(t + 1)⌋ − ⌊a t⌋ in tick t, at most
one level off over any segment, and debts are a level more for a path that a real run can keep to,
or a level less for a bound that no run undercuts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costopt.backtesting.path_problem import (
    Costs,
    GangCostSeries,
    Levels,
    Overhead,
    PathProblem,
    ProgressScale,
)
from costopt.domain.market import Pool

MARGIN_USD = 1e-9
"""Two ways whose dollars differ by less are as cheap."""

Move = int | Levels
"""By how many levels progress moves; or to which level from each, where that differs."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One tick of a path: the gang (None: none), and the overhead it begins with, if it begins."""

    gang: int | None
    begins: Overhead | None


@dataclass(frozen=True, slots=True)
class PathState:
    """Where a run is before a tick: what is done, the gang that runs (None: none), and the seconds
    that its start still takes."""

    done_units: float
    gang: int | None = None
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PathValues:
    """Dollars to the end by level: where nothing runs, by gang that runs, by gang that has gone."""

    idle: Costs
    on: tuple[Costs, ...]
    gone: tuple[Costs, ...]


class ProgressPath:
    """The path over ``gangs`` in levels of ``quantum`` seconds of the scale.

    ``cautious`` rounds against the run, else for it; without a difference where the quantum
    divides everything. ``solve`` returns inf where no run is in time.
    """

    def __init__(
        self,
        gangs: Sequence[GangCostSeries],
        problem: PathProblem,
        quantum: float,
        *,
        cautious: bool = True,
    ) -> None:
        self.gangs = gangs
        self.problem = problem
        self.scale = ProgressScale(gangs, problem)
        self._quantum = quantum
        self._cautious = cautious
        self._rates = [self._rate(gang) for gang in gangs]
        debts = [self._debt_levels(g, o.seconds) for g in gangs for o in g.overheads]
        self._zero = max(0, *debts)
        self._size = self._zero + self._round(self.scale.end, up=True) + 3
        self._progress = np.arange(-self._zero, self._size - self._zero, dtype=np.float64) * quantum
        self._debts = [tuple(self._debt(g, o) for o in g.overheads) for g in gangs]
        self._whole = [self._moved(gang, problem.tick_s) for gang in gangs]
        self._barred = [self._barred_levels(gang) for gang in gangs]
        self._sizes = _sizes_by_pool(gangs)

    def solve(self) -> float:
        """Walk all ticks from the last to the first; return the least dollars."""
        ahead = self._after_all()
        for tick in reversed(range(self.problem.ticks)):
            ahead = self._before(tick, ahead)
        return float(ahead.idle[self._zero])

    def steps(self) -> Iterator[PathStep]:
        """Yield the cheapest path tick by tick to its end; nothing where there is none."""
        gang, level = None, self._zero
        for tick, values in enumerate(self.values()):
            if tick == 0:
                if not math.isfinite(values.idle[level]):
                    return
                continue
            step, level, is_done = self._step(tick - 1, values, gang, level)
            gang = step.gang
            yield step
            if is_done:
                return

    def values(self) -> Iterator[PathValues]:
        """Yield the values before each tick, the first to the last, and those after all.

        Every √T ticks they are kept, and those between computed again.
        """
        ticks = self.problem.ticks
        block = max(1, math.isqrt(ticks))
        ahead, kept = self._after_all(), {ticks: self._after_all()}
        for tick in reversed(range(ticks)):
            ahead = self._before(tick, ahead)
            if tick % block == 0:
                kept[tick] = ahead
        for begin in range(0, ticks, block):
            end = min(begin + block, ticks)
            found = [kept[end]]
            for tick in reversed(range(begin + 1, end)):
                found.append(self._before(tick, found[-1]))
            yield kept[begin]
            yield from reversed(found[1:])
        yield kept[ticks]

    def usd_from(self, values: PathValues, state: PathState) -> float:
        """Return the least dollars from a state to the end; inf where it is too late."""
        usd = float(values.idle[self._level(state.done_units)])
        if state.gang is None:
            return usd
        return min(usd, float(values.on[state.gang][self._running_level(state)]))

    def best_gang(self, tick: int, ahead: PathValues, state: PathState) -> int | None:
        """Return the gang that the cheapest path from a state runs in a tick, None for none; it
        runs where waiting is as cheap.

        ``ahead`` are the values after the tick.
        """
        level = self._level(state.done_units)
        found = [self._best(tick, ahead, None, level, MARGIN_USD)]
        if state.gang is not None:
            at = self._running_level(state)
            found.append(self._best(tick, ahead, state.gang, at, MARGIN_USD))
        return min(reversed(found), key=lambda each: each[0])[1].gang

    def _level(self, done_units: float) -> int:
        return self._zero + round(self.scale.progress(done_units) / self._quantum)

    def _running_level(self, state: PathState) -> int:
        """The level of a gang that runs: what its start still takes is counted as a debt."""
        assert state.gang is not None
        progress = np.array([self.scale.progress(state.done_units)])
        at = float(self.scale.after(self.gangs[state.gang], progress, -state.start_s)[0])
        return max(0, self._zero + round(at / self._quantum))

    def _after_all(self) -> PathValues:
        nothing = np.full(self._size, np.inf)
        every = (nothing,) * len(self.gangs)
        return PathValues(nothing, every, every)

    def _before(self, tick: int, ahead: PathValues) -> PathValues:
        """The values before a tick by those after it."""
        low, high = self._seen(tick)
        runs = [self._run(index, tick, ahead, low, high) for index in range(len(self.gangs))]
        zero, first = max(low, self._zero), self._zero
        idle = np.full(self._size, np.inf)
        idle[zero:high] = ahead.idle[zero:high]
        for gang, run, (debt, first_debt, _, _) in zip(self.gangs, runs, self._debts, strict=True):
            if run is None:
                continue
            launched = gang.launch.usd + self._shifted(run, zero, high, debt)
            if zero == first:
                at = self._shifted(run, first, first + 1, first_debt)
                launched[:1] = gang.first_launch.usd + at
            np.minimum(idle[zero:high], launched, out=idle[zero:high])
        gone = [idle] * len(self.gangs)
        for members in self._sizes:
            self._resize(members, runs, gone, low, high)
        on = [
            rest if run is None else np.minimum(run, rest)
            for run, rest in zip(runs, gone, strict=True)
        ]
        return PathValues(idle, tuple(on), tuple(gone))

    def _run(self, index: int, tick: int, ahead: PathValues, low: int, high: int) -> Costs | None:
        """Dollars to the end by level where the gang runs in the tick; None where it cannot."""
        gang = self.gangs[index]
        usd = float(gang.usd_per_tick[tick])
        if not math.isfinite(usd):
            return None
        lives_s, tick_s = float(gang.lives_s[tick]), self.problem.tick_s
        whole = lives_s >= tick_s - 1e-6
        after = ahead.on[index] if whole else ahead.gone[index]
        run = np.full(self._size, np.inf)
        run[low:high] = usd + self._shifted(after, low, high, self._gain(index, tick, lives_s))
        run[max(low, self._ends_from(gang, tick)) : high] = usd
        barred = self._barred[index]
        if barred is not None:
            run[barred] = np.inf
        return run

    def _ends_from(self, gang: GangCostSeries, tick: int) -> int:
        """The level from which the gang ends the work in the tick, and in time."""
        left_s = self.problem.span_s - tick * self.problem.tick_s + 1e-6
        useful_s = min(float(gang.lives_s[tick]), left_s)
        needed = self.scale.after(gang, np.array([self.scale.end]), -useful_s)
        return self._zero + self._round(float(needed[0]), up=True)

    def _resize(
        self,
        members: Sequence[int],
        runs: Sequence[Costs | None],
        gone: list[Costs],
        low: int,
        high: int,
    ) -> None:
        """Let gangs of one pool, the smallest first, go on as smaller or larger ones."""
        for order, which in ((members, 2), (members[::-1], 3)):
            best: Costs | None = None  # from low to high: the others cannot be reached
            for index in order:
                run, gang = runs[index], self.gangs[index]
                if best is not None:
                    gone[index] = gone[index].copy()
                    np.minimum(gone[index][low:high], best, out=gone[index][low:high])
                if run is not None:
                    begun = self._shifted(run, low, high, self._debts[index][which])
                    begun += gang.overheads[which].usd
                    best = begun if best is None else np.minimum(best, begun, out=best)

    def _step(
        self, tick: int, ahead: PathValues, gang: int | None, level: int
    ) -> tuple[PathStep, int, bool]:
        """The best step from a state, the level after it and whether it ends the work."""
        _, step, level = self._best(tick, ahead, gang, level)
        if step.gang is None:
            return step, level, False
        chosen = self.gangs[step.gang]
        is_done = level >= self._ends_from(chosen, tick)
        gain = self._gain(step.gang, tick, float(chosen.lives_s[tick]))
        return step, level + gain if isinstance(gain, int) else int(gain[level]), is_done

    def _best(
        self, tick: int, ahead: PathValues, gang: int | None, level: int, margin_usd: float = 0.0
    ) -> tuple[float, PathStep, int]:
        """The dollars of the best step from a state and to the end, and the level it works from.

        It waits where that is cheaper than running by more than ``margin_usd``, or just as much.
        """
        low, high = self._seen(tick)
        best = (math.inf, PathStep(None, None), level)
        for index, found in enumerate(self.gangs):
            run = self._run(index, tick, ahead, low, high)
            if run is None:
                continue
            begins: list[tuple[Overhead | None, Move]] = []
            if index == gang:
                begins.append((None, 0))
            elif gang is not None and self.gangs[gang].pool == found.pool:
                which = 2 if self.gangs[gang].nodes > found.nodes else 3
                begins.append((found.overheads[which], self._debts[index][which]))
            if level >= self._zero:
                which = 1 if level == self._zero else 0
                begins.append((found.overheads[which], self._debts[index][which]))
            for overhead, debt in begins:
                at = level + debt if isinstance(debt, int) else int(debt[level])
                usd = 0.0 if overhead is None else overhead.usd
                if 0 <= at < self._size and usd + run[at] < best[0]:
                    best = (usd + float(run[at]), PathStep(index, overhead), at)
        idle = float(ahead.idle[level]) if level >= self._zero else math.inf
        return (idle, PathStep(None, None), level) if idle <= best[0] - margin_usd else best

    def _seen(self, tick: int) -> tuple[int, int]:
        """Levels that can be reached before this tick and from which the work can still be done."""
        most = math.ceil(self.problem.tick_s / self._quantum - 1e-6) + self._is_rounded
        lowest = self._size - 3 - (self.problem.ticks - tick) * most - self._is_rounded
        highest = self._zero + tick * most + self._is_rounded
        low = max(0, lowest)
        return low, max(low, min(self._size, highest + 1))

    @cached_property
    def _is_rounded(self) -> int:
        return int(any(rate is None or not _is_whole(rate) for rate in self._rates))

    def _rate(self, gang: GangCostSeries) -> float | None:
        """Levels per tick, None where they depend on the level."""
        share = self.scale.constant(gang)
        return None if share is None else share * self.problem.tick_s / self._quantum

    def _gain(self, index: int, tick: int, lives_s: float) -> Move:
        """From level to level in a tick of which the gang lives so long."""
        rate = self._rates[index]
        if lives_s < self.problem.tick_s - 1e-6:
            return self._moved(self.gangs[index], lives_s)
        if rate is None:
            return self._whole[index]
        if _is_whole(rate):
            return round(rate)
        return math.floor(rate * (tick + 1)) - math.floor(rate * tick)

    def _moved(self, gang: GangCostSeries, seconds: float) -> Move:
        """From level to level in so many seconds of work; back where they are negative."""
        share = self.scale.constant(gang)
        if share is not None:
            return self._round(share * seconds, up=not self._cautious)
        exact = self.scale.after(gang, self._progress, seconds) / self._quantum
        rounded = np.floor(exact + 1e-6) if self._cautious else np.ceil(exact - 1e-6)
        found: Levels = rounded.astype(np.int64) + self._zero
        return found

    def _debt(self, gang: GangCostSeries, overhead: Overhead) -> Move:
        """From the level at a launch to that from which its whole ticks count."""
        back = self._moved(gang, -overhead.seconds)
        return back - self._slip(gang) if isinstance(back, int) else back

    def _debt_levels(self, gang: GangCostSeries, seconds: float) -> int:
        most = max(self.scale.shares(gang))
        return self._round(most * seconds, up=True) + abs(self._slip(gang)) + 1

    def _slip(self, gang: GangCostSeries) -> int:
        """The level that rounding may be off over a segment; negative for the run."""
        share = self.scale.constant(gang)
        if share is None or _is_whole(share * self.problem.tick_s / self._quantum):
            return 0
        return 1 if self._cautious else -1

    def _round(self, progress: float, *, up: bool) -> int:
        exact = progress / self._quantum
        return math.ceil(exact - 1e-6) if up else math.floor(exact + 1e-6)

    def _barred_levels(self, gang: GangCostSeries) -> npt.NDArray[np.bool_] | None:
        """Levels in whose stage it may not run, nor in the one that its overhead leads to."""
        if all(gang.allowed):
            return None
        allowed = np.asarray(gang.allowed)
        longest_s = max(overhead.seconds for overhead in gang.overheads)
        later = self.scale.after(gang, self._progress, longest_s)
        stages = self.scale.stage_at(self._progress), self.scale.stage_at(later)
        barred: npt.NDArray[np.bool_] = ~(allowed[stages[0]] | allowed[stages[1]])
        return barred

    def _shifted(self, values: Costs, low: int, high: int, move: Move) -> Costs:
        """The values at where the levels from ``low`` to ``high`` are moved to."""
        found = np.full(high - low, np.inf)
        if isinstance(move, int):
            begin, end = max(0, low + move), min(self._size, high + move)
            if begin < end:
                found[begin - low - move : end - low - move] = values[begin:end]
            return found
        to = move[low:high]
        inside = (to >= 0) & (to < self._size)
        found[inside] = values[to[inside]]
        return found


def _is_whole(levels: float) -> bool:
    return abs(levels - round(levels)) < 1e-6


def _sizes_by_pool(gangs: Sequence[GangCostSeries]) -> list[list[int]]:
    """The gangs of each pool that has several sizes, the smallest first."""
    by_pool: dict[Pool, list[int]] = {}
    for index in sorted(range(len(gangs)), key=lambda index: gangs[index].nodes):
        by_pool.setdefault(gangs[index].pool, []).append(index)
    return [members for members in by_pool.values() if len(members) > 1]
