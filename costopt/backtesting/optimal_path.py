"""The cheapest way through pools that come, go and change their price: a path over progress.

On a grid of g seconds, where what runs at a grid point survives the tick, a run is a sequence of
segments, each a launch in one lane i (a pool, at v_i units of work per second) kept for L ticks; it
does max(L·g − d, 0)·v_i units, d being the overhead of a launch. A segment shorter than d does
nothing, so no optimum has one, and the work of a segment may be counted as a debt d·v_i at its
launch and a gain g·v_i per tick. With C_t(i, w) the least dollars with which w units are done
before tick t on lane i (0: nowhere), m_t(w) = min_i C_t(i, w) and p_t(i) the price of the tick:

    C_{t+1}(0, w)         = m_t(w)
    C_{t+1}(i, w + g·v_i) = p_t(i) + min(C_t(i, w), m_t(w + d·v_i))

up to the first w ≥ W within the deadline; the last tick is paid whole. The first launch of all has
an overhead of its own, since it restores nothing. On equal speeds and one pool this is the
OMNISCIENT bound of "Can't Be Late" (Wu et al., NSDI'24, §5).

Units are counted in quanta q. Where q divides every gain and debt the path is exact. Where no such
q is coarse enough (``MAX_LEVELS``), gains are rounded down and debts up, which a real run can keep
to, and the other way round for a bound that no run undercuts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import numpy.typing as npt

from costopt.domain.market import Pool

Costs = npt.NDArray[np.float64]

MAX_LEVELS = 200_000
"""Levels of progress at the most: a path over six pools and 1,700 ticks then takes about 10 s."""

NO_PREDECESSOR = -1
"""The place of the state before the first launch."""

DENOMINATOR = 10**6
"""Gains and debts are taken for fractions with no larger denominator."""


@dataclass(frozen=True, slots=True)
class PoolCostSeries:
    """One pool as the path sees it: dollars per tick of the whole gang, inf where it is down."""

    pool: Pool
    usd_per_tick: Costs
    units_per_s: float


@dataclass(frozen=True, slots=True)
class PathProblem:
    """What is to be done: all times in seconds; the first launch has its own overhead."""

    work_units: float
    span_s: float
    tick_s: float
    first_overhead_s: float
    overhead_s: float

    @property
    def ticks(self) -> int:
        """Ticks that begin before the deadline."""
        return math.ceil(self.span_s / self.tick_s - 1e-9)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One tick of a path: the lane (None: nowhere) and whether it was launched in this tick."""

    lane: int | None
    launched: bool


@dataclass(frozen=True, slots=True)
class _End:
    tick: int
    row: int
    source: int


class ProgressPath:
    """The path over ``lanes`` in quanta of ``quantum`` units.

    ``cautious`` rounds against the run, else for it; without a difference where the quantum
    divides everything. ``usd`` is inf where no run is in time.
    """

    def __init__(
        self,
        lanes: Sequence[PoolCostSeries],
        course: PathProblem,
        quantum: float,
        *,
        cautious: bool = True,
    ) -> None:
        self.lanes = lanes
        self.course = course
        self._quantum = quantum
        self._cautious = cautious
        speeds = [lane.units_per_s for lane in lanes]
        self._gains = [self._levels(v * course.tick_s, up=not cautious) for v in speeds]
        self._debts = [self._levels(v * course.overhead_s, up=cautious) for v in speeds]
        self._first = [self._levels(v * course.first_overhead_s, up=cautious) for v in speeds]
        self._zero = max(*self._debts, *self._first)
        self._size = self._zero + self._levels(course.work_units, up=True)
        self._block = max(1, math.isqrt(course.ticks))
        self._end: _End | None = None
        self.usd = math.inf

    def solve(self) -> float:
        """Walk all ticks; the least dollars."""
        values = self._start()
        for tick in range(self.course.ticks):
            values = self._advance(values, tick)
        return self.usd

    def steps(self) -> tuple[PathStep, ...]:
        """The path behind ``usd``, tick by tick to its end; empty where there is none.

        Every √T ticks the costs are kept, and those between walked again.
        """
        kept, values = {}, self._start()
        for tick in range(self.course.ticks):
            if tick % self._block == 0:
                kept[tick] = values
            values = self._advance(values, tick)
        return () if self._end is None else tuple(reversed(list(self._back(kept, self._end))))

    def _start(self) -> Costs:
        return np.full((len(self.lanes) + 1, self._size), np.inf)

    def _levels(self, units: float, *, up: bool) -> int:
        exact = units / self._quantum
        return math.ceil(exact - 1e-6) if up else math.floor(exact + 1e-6)

    def _advance(self, values: Costs, tick: int) -> Costs:
        low, high = self._seen(tick)
        after = np.full_like(values, np.inf)
        cheapest = values[:, low:high].min(axis=0)
        after[0, low:high] = cheapest
        for row, lane in enumerate(self.lanes, 1):
            usd = float(lane.usd_per_tick[tick])
            if math.isfinite(usd):
                base, source = self._sources(values[row], cheapest, low, row)
                self._finish(source, base, usd, row, tick)
                begin = base + self._gains[row - 1]
                stay = source[: max(0, self._size - begin)]
                after[row, begin : begin + len(stay)] = stay + usd
        return after

    def _seen(self, tick: int) -> tuple[int, int]:
        """States that can exist before this tick and from which the work can still be done."""
        most = max(self._gains)
        lowest = self._levels(self.course.work_units, up=True) - (self.course.ticks - tick) * most
        high = min(self._size, self._zero + tick * most + 1)
        return min(high, max(0, self._zero + lowest)), high

    def _sources(self, run: Costs, cheapest: Costs, low: int, row: int) -> tuple[int, Costs]:
        """Costs by what is done after the debt of a launch; the index of the first, and they."""
        high = low + len(cheapest)
        launch_from = max(low, self._zero)
        launch_at = launch_from - self._debts[row - 1]
        first_at = self._zero - self._first[row - 1]
        base = min(low, launch_at, first_at)
        source = np.full(max(high, first_at + 1) - base, np.inf)
        source[low - base : high - base] = run[low:high]
        launched = cheapest[launch_from - low :]
        part = source[launch_at - base : launch_at - base + len(launched)]
        np.minimum(part, launched[: len(part)], out=part)
        source[first_at - base] = min(source[first_at - base], 0.0)
        return base, source

    def _finish(self, source: Costs, base: int, usd: float, row: int, tick: int) -> None:
        course = self.course
        lane = self.lanes[row - 1]
        rest_s = min(course.tick_s, course.span_s - tick * course.tick_s + 1e-6)
        gain = self._gains[row - 1] * self._quantum
        gain *= min(1.0, rest_s / course.tick_s)
        if not self._cautious:
            gain = max(gain, rest_s * lane.units_per_s)
        needed = self._zero + self._levels(course.work_units - gain, up=True)
        begin = max(0, needed - base)
        if begin >= len(source):
            return
        best = begin + int(np.argmin(source[begin:]))
        if source[best] + usd < self.usd:
            self.usd = float(source[best]) + usd
            self._end = _End(tick, row, base + best)

    def _back(self, kept: dict[int, Costs], end: _End) -> Iterator[PathStep]:
        row, index = end.row, end.source
        values: list[Costs] = []
        for tick in range(end.tick, -1, -1):
            values = values or self._walked(kept, tick)
            now = values.pop()
            launch = self._launch(now, row, index)
            yield PathStep(None if row == 0 else row - 1, launch is not None)
            if launch == NO_PREDECESSOR:
                yield from (PathStep(None, False) for _ in range(tick))
                return
            index = index if launch is None else launch
            if row == 0 or launch is not None:
                row = int(np.argmin(now[:, index]))
            index -= 0 if row == 0 else self._gains[row - 1]

    def _launch(self, now: Costs, row: int, index: int) -> int | None:
        """Where the state before was if this one was launched into, None where it went on."""
        if row == 0:
            return None
        stay = now[row, index] if index < self._size else np.inf
        launch_index = index + self._debts[row - 1]
        may_again = self._zero <= launch_index < self._size
        again = now[:, launch_index].min() if may_again else np.inf
        if index == self._zero - self._first[row - 1] and min(stay, again) > 0:
            return NO_PREDECESSOR
        return launch_index if again < stay else None

    def _walked(self, kept: dict[int, Costs], until: int) -> list[Costs]:
        """The costs before every tick of the block up to ``until``."""
        begin = until - until % self._block
        walked = [kept[begin]]
        for tick in range(begin, until):
            walked.append(self._advance(walked[-1], tick))
        return walked


def progress_quantum(lanes: Sequence[PoolCostSeries], course: PathProblem) -> tuple[float, bool]:
    """The unit in which progress is counted, and whether it divides every gain and debt."""
    lengths = [
        lane.units_per_s * seconds
        for lane in lanes
        for seconds in (course.tick_s, course.overhead_s, course.first_overhead_s)
        if seconds > 0
    ]
    parts = [Fraction(length).limit_denominator(DENOMINATOR) for length in lengths]
    if all(_same(part, length) for part, length in zip(parts, lengths, strict=True)):
        common = reduce(_gcd, parts)
        if course.work_units / common <= MAX_LEVELS:
            return float(common), True
    least = min(lane.units_per_s for lane in lanes) * course.tick_s
    return least / max(1, math.floor(MAX_LEVELS * least / course.work_units)), False


def _same(part: Fraction, length: float) -> bool:
    return part > 0 and abs(float(part) - length) <= 1e-9 * length


def _gcd(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(
        math.gcd(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )
