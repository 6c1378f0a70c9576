"""What a path of least cost is found through: gangs with their costs, and progress in levels.

Speeds differ from stage to stage of the work. So progress is measured by the seconds that the
fastest gang of each stage would take; there, a gang that is as fast in all stages relative to these
moves on by as much everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from costopt.domain.market import Pool

Costs = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int64]

MAX_LEVELS = 200_000
"""Levels of an exact path at the most: over six pools and 1,700 ticks it then takes about 10 s."""

MAX_ROUNDED_LEVELS, MIN_ROUNDED_LEVELS = 20_000, 2_000
"""Of a path that rounds: a level is 0.005 % of the work, or more where there are many gangs."""

MAX_CELLS = 10**8
"""Levels × ticks × gangs of a path that rounds: 2 s."""

DENOMINATOR = 10**6
"""Gains and debts are taken for fractions with no larger denominator."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Of a launch or a change of size: seconds without work, and dollars for moving data."""

    seconds: float
    usd: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class GangCostSeries:
    """One gang in one pool as the path sees it.

    ``usd_per_tick`` are dollars, inf where it cannot run at the tick's start; it then lives for
    ``lives_s`` of the tick. ``speeds`` are units per second by stage, and ``allowed`` the stages in
    which it may run. ``shrink`` is the overhead of its beginning with nodes of a larger gang of its
    pool, ``grow`` with those of a smaller one.
    """

    pool: Pool
    nodes: int
    usd_per_tick: Costs
    lives_s: Costs
    speeds: tuple[float, ...]
    allowed: tuple[bool, ...]
    launch: Overhead
    first_launch: Overhead
    shrink: Overhead
    grow: Overhead

    @property
    def overheads(self) -> tuple[Overhead, ...]:
        """All four."""
        return self.launch, self.first_launch, self.shrink, self.grow


@dataclass(frozen=True, slots=True)
class PathProblem:
    """What is to be done: units of work by stage, and times in seconds."""

    stage_units: tuple[float, ...]
    span_s: float
    tick_s: float

    @property
    def ticks(self) -> int:
        """Ticks that begin before the deadline."""
        return math.ceil(self.span_s / self.tick_s - 1e-9)


class ProgressScale:
    """Progress in seconds of the fastest gang of each stage; ``end`` is all the work."""

    def __init__(self, gangs: Sequence[GangCostSeries], problem: PathProblem) -> None:
        self._units = problem.stage_units
        self._fastest = [max(speeds) for speeds in zip(*(g.speeds for g in gangs), strict=True)]
        lengths = [u / v for u, v in zip(self._units, self._fastest, strict=True)]
        self.bounds = [0.0, *accumulate(lengths)]
        self.end = self.bounds[-1]

    def shares(self, gang: GangCostSeries) -> list[float]:
        """The gang's speed by stage, where that of the fastest is 1."""
        return [v / fastest for v, fastest in zip(gang.speeds, self._fastest, strict=True)]

    def constant(self, gang: GangCostSeries) -> float | None:
        """Its share where that is the same in every stage."""
        shares = self.shares(gang)
        same = all(abs(share - shares[0]) <= 1e-9 * shares[0] for share in shares)
        return shares[0] if same else None

    def after(self, gang: GangCostSeries, progress: Costs, seconds: float) -> Costs:
        """Progress after so many seconds of work of the gang; before them where negative."""
        share = self.constant(gang)
        if share is not None:
            return progress + share * seconds
        shares, far = self.shares(gang), 1e9
        knots = np.array([-far, *self.bounds, self.end + far])
        spent = np.diff(knots) / np.array([shares[0], *shares, shares[-1]])
        times = np.concatenate([[0.0], np.cumsum(spent)])
        moved: Costs = np.interp(np.interp(progress, knots, times) + seconds, times, knots)
        return moved

    def units(self, progress: float) -> float:
        """Units of work at this progress."""
        return float(np.interp(progress, self.bounds, [0.0, *accumulate(self._units)]))

    def progress(self, units: float) -> float:
        """Progress at so many units of work."""
        return float(np.interp(units, [0.0, *accumulate(self._units)], self.bounds))

    def stage_at(self, progress: Costs) -> Levels:
        """The stage of the next unit of work."""
        inner = np.asarray(self.bounds[1:-1])
        found: Levels = np.searchsorted(inner, progress + 1e-9, side="right").astype(np.int64)
        return found


def progress_quantum(gangs: Sequence[GangCostSeries], problem: PathProblem) -> tuple[float, bool]:
    """Return a level in seconds of the scale, and whether it divides every gain and debt."""
    scale = ProgressScale(gangs, problem)
    exact = _common_divisor(gangs, problem, scale)
    if exact is not None and scale.end / exact <= MAX_LEVELS:
        return exact, True
    levels = min(MAX_CELLS // (problem.ticks * len(gangs)), MAX_ROUNDED_LEVELS)
    per_tick = math.ceil(max(levels, MIN_ROUNDED_LEVELS) * problem.tick_s / scale.end)
    return problem.tick_s / per_tick, False


def _common_divisor(
    gangs: Sequence[GangCostSeries], problem: PathProblem, scale: ProgressScale
) -> float | None:
    """Return the largest that divides every gain and debt, None where there is none."""
    lengths = set()
    for gang in gangs:
        share = scale.constant(gang)
        if share is None or not all(gang.allowed) or np.any(gang.lives_s < problem.tick_s):
            return None
        times = (problem.tick_s, *(overhead.seconds for overhead in gang.overheads))
        lengths |= {share * seconds for seconds in times if seconds > 0}
    parts = [Fraction(length).limit_denominator(DENOMINATOR) for length in lengths]
    if not all(_same(part, length) for part, length in zip(parts, lengths, strict=True)):
        return None
    return float(reduce(_gcd, parts))


def _same(part: Fraction, length: float) -> bool:
    return part > 0 and abs(float(part) - length) <= 1e-9 * length


def _gcd(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(
        math.gcd(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )
