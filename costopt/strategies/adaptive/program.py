"""When to run on spot, wait or fall back: a stochastic dynamic program over time × slack × mode.

Time runs in steps. In an after-decision state n steps are left to the deadline and, of these, u
are spare: the safe gang, launched at the latest, would need the other n − u. Whether the pools
have capacity, and for how long by now, is the class of age k; periods end at the rates λ_k of
``costopt.market.lifetime``, and last from one class to the next with the chance step / width. With
price p per step of spot at the speed v of the safe gang and start d, P per step of the safe gang,
and g the steps that a launch of it must have left (its start, and what may be lost before):

    S(n, u, k) = min(p + E S(n − 1, u + v − 1, ·), W(n, u, k))            on spot that is still up
    W(n, u, k) = min(E W(n − 1, u − 1, ·),                                wait
                     p + E S(n − 1, u − d, ·)  where k is up,             launch spot
                     P + E O(n − 1, u, ·))                                launch the safe gang
    O(n, u, k) = min(P + E O(n − 1, u, ·), E W(n − 1, u − g − 1, ·),
                     p + E S(n − 1, u − g − d, ·)  where k is up)         on the safe gang

and 0 once nothing is left to do, n − u − g ≤ 0 (n − u ≤ 0 in O). A state with u < 0 costs ∞, so
the deadline is kept within the recursion itself. Between whole u the values are interpolated,
which errs upwards since they are convex in u.

Each gang that is weighed is a lane i with its own S. Its d is the work that it would do in the time
of a start, so that a launch costs its p for that time at any speed. W and O also know which pool
could be launched in: that of the cheapest lane that is up, or that none is; gangs of one pool come
and go together. A faster lane of a costlier pool can be launched beside it with the share of the
time in which that pool is up, as who has little to spare would do. When a lane is lost, the others
are looked through from the cheapest, each being up with its share of the time, independently; while
none is up, or only a costlier one, a lane comes back at its rate, those beyond the fastest counting
half since shortage is shared. A lane that is cheaper than the one that runs is weighed when it is
there, not before.

Where the work has stages, p, v and P are those of the stage that the work left in the state falls
in, and a stage that may not wait takes the first term out of W, and the second out of O, but for
its first step of work. Where prices or carbon are forecast, p and P are those of the hour.

The hysteresis that published policies add by hand (Uniform Progress, NSDI'24) follows from the
recursion: a change of mode costs a start. ``ProgramCache`` lets jobs that are alike share solved
programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from costopt.strategies.adaptive.problem import DeadlineProblem, factor, has_changed
from costopt.strategies.adaptive.transitions import (
    launchable_transitions,
    loss_transitions,
    survival_transitions,
)

Values = npt.NDArray[np.float32]
"""In single precision: a solve moves more memory than it computes."""

Rows = npt.NDArray[np.float64]
"""One figure per row of a table, that is per step to spare."""

INFEASIBLE_COST = 1e7
"""Higher than any possible cost, and finite so that it can be interpolated away."""


class ValueFunction:
    """Values after a decision with n steps to go, for the ``keep`` n that end with ``steps``."""

    def __init__(self, terms: DeadlineProblem, steps: int, spare: int, keep: int = 96) -> None:
        self.terms = terms
        self.steps = steps
        self.spare = spare
        self.first = max(0, steps - keep + 1)
        self._recursion = _Recursion(terms, spare)
        self._kept: list[_After] = []
        for n in range(steps + 1):
            self._recursion.step(n)
            if n >= self.first:
                self._kept.append(self._recursion.after())

    def contains(self, steps: float) -> bool:
        """Whether the values with so many steps to go were kept."""
        return self.first <= round(steps) <= self.steps

    def on_spot(self, steps: float, spare: float, lane: int, of_age: int) -> float:
        """On this lane, whose capacity is in this class of age."""
        return self._between(steps, spare, lambda row: row.spot[lane], of_age)

    def waiting(self, steps: float, spare: float, lane: int | None, of_age: int) -> float:
        """On nothing; ``lane`` is the cheapest that is up, None where all are down."""
        return self._between(steps, spare, lambda row: row.wait, self._column(lane, of_age))

    def on_safe(self, steps: float, spare: float, lane: int | None, of_age: int) -> float:
        """On the safe gang; ``lane`` as for waiting."""
        return self._between(steps, spare, lambda row: row.safe, self._column(lane, of_age))

    def _between(
        self, steps: float, spare: float, table: Callable[[_After], Values], column: int
    ) -> float:
        """Interpolated between the whole n around ``steps``, with the same spare time in both."""
        low = min(max(math.floor(steps), self.first), self.steps)
        high = min(low + 1, self.steps)
        part = min(max(steps - low, 0.0), 1.0)
        below = _at(table(self._kept[low - self.first]), spare, column)
        above = _at(table(self._kept[high - self.first]), spare, column)
        return (1.0 - part) * below + part * above

    def _column(self, lane: int | None, of_age: int) -> int:
        return self.terms.block_of(lane) * self.terms.classes + of_age


@dataclass(frozen=True, slots=True)
class _After:
    """Values by spare steps × class of age: ``spot`` lane by lane on a first axis.

    In ``wait`` and ``safe`` the classes of one head come after those of the other, down last.
    """

    spot: Values
    wait: Values
    safe: Values


class _Recursion:
    """One step after the other, from the deadline backwards."""

    def __init__(self, terms: DeadlineProblem, spare: int) -> None:
        self.terms = terms
        self._u = np.arange(spare + 1, dtype=np.float64)
        classes, lanes = terms.classes, range(len(terms.lanes))
        self._blocks = [_block(terms.block_of(i), classes) for i in lanes]
        self._alike = _alike(terms)
        self._faster = [(_block(block, classes), i) for block, i in terms.faster_lanes()]
        self._hop = _block(terms.hop_class, 1)
        self._stays = _stacked(
            [survival_transitions(lane.rates, terms.step_h) for lane in terms.lanes]
        )
        self._lost = _Leaps(_stacked([loss_transitions(terms, i) for i in lanes]))
        blocks = _columns_by_block(launchable_transitions(terms), classes)
        self._lasting = np.zeros((len(blocks), classes, classes), np.float32)
        for place, block in enumerate(blocks):
            self._lasting[place] = block[_block(place, classes)]
            block[_block(place, classes)] = 0.0
        self._leaps = _Leaps(blocks)
        shape = (spare + 1, (len(terms.heads) + 1) * classes)
        self._after_spot = np.zeros((len(terms.lanes), spare + 1, classes), np.float32)
        self._after_wait = np.zeros(shape, np.float32)
        self._after_safe = np.zeros(shape, np.float32)
        tariffs = (terms.safe_tariff, *(lane.tariff for lane in terms.lanes))
        steady = not terms.stages and not any(tariffs)
        self._steady = _figures(terms, 0, self._u) if steady else None

    def step(self, n: int) -> None:
        """Go on to the values with n steps to go; call with n = 0, 1, 2, …"""
        if n > 0:
            spot, wait, safe = self._decide(n)
            rows = slice(len(wait))
            if len(spot):
                self._after_spot[:, rows] = spot @ self._stays + self._lost.of(wait)
            self._after_wait[rows], self._after_safe[rows] = map(self._expected, (wait, safe))

    def after(self) -> _After:
        """Return a copy of the values after a decision with as many steps to go as reached."""
        return _After(self._after_spot.copy(), self._after_wait.copy(), self._after_safe.copy())

    def _expected(self, values: Values) -> Values:
        """``values`` times the matrix of the market."""
        by_block = values.reshape(len(values), -1, self.terms.classes).swapaxes(0, 1)
        expected = by_block @ self._lasting + self._leaps.of(values)
        return expected.swapaxes(0, 1).reshape(values.shape)

    def _decide(self, n: int) -> tuple[Values, Values, Values]:
        """Up to the first row in which nothing is left to do, as in those beyond."""
        rows = slice(n + 1)
        terms, guard, u = self.terms, self.terms.guard, self._u[rows]
        after_wait, after_safe = self._after_wait[rows], self._after_safe[rows]
        after_spot = self._after_spot[:, rows]
        here = self._steady or _figures(terms, n, n - u - guard)
        on_safe = self._steady or _figures(terms, n, n - u)
        wait = np.minimum(here.safe_cost + after_safe, here.idle(_sooner(after_wait, 1.0)))
        safe = np.minimum(
            on_safe.safe_cost + after_safe, on_safe.idle(_sooner(after_wait, 1.0 + guard))
        )
        spot = np.empty_like(after_spot)
        for lanes in self._alike:
            after, start = after_spot[lanes], terms.lanes[lanes[0]].start
            launched = here.on_lanes(lanes, after, start)
            from_safe = on_safe.on_lanes(lanes, after, start + guard)
            spot[lanes] = here.on_lanes(lanes, after, 0.0)
            for place, i in enumerate(lanes):
                _lower(wait[:, self._blocks[i]], launched[place])
                _lower(safe[:, self._blocks[i]], from_safe[place])
        for up, i in self._faster:
            lane, after = terms.lanes[i], after_spot[i : i + 1, :, self._hop]
            _mix(wait[:, up], here.on_lanes([i], after, lane.start)[0], lane.share)
            _mix(safe[:, up], on_safe.on_lanes([i], after, lane.start + guard)[0], lane.share)
        for i, up in enumerate(self._blocks):
            _lower(spot[i], wait[:, up] + np.float32(terms.lanes[i].leave))
        done, safe_done = n - u - guard <= 1e-9, n - u <= 1e-9
        spot[:, done], wait[done], safe[safe_done] = 0.0, 0.0, 0.0
        return spot, wait, safe


def _lower(values: Values, other: Values) -> None:
    """Replace the values by the other ones where these are lower."""
    np.minimum(values, other, out=values)


def _mix(values: Values, other: Values, chance: float) -> None:
    """Replace the values by what they are where the other may be chosen, with this chance."""
    values -= chance * np.maximum(values - other, 0.0)


class _Leaps:
    """Matrices most of whose rows are 0.

    Products are that much smaller, and none is so large that BLAS would share it among threads:
    on a busy machine these wait for each other longer than they work.
    """

    def __init__(self, matrices: Values) -> None:
        self._rows = np.flatnonzero(matrices.any(axis=(0, 2)))
        self._matrices = matrices[:, self._rows]

    def of(self, values: Values) -> Values:
        """``values`` times each of the matrices."""
        products: Values = values[:, self._rows] @ self._matrices
        return products


@dataclass(frozen=True, slots=True)
class _Figures:
    """What a step costs and how far it brings each lane; by row where the work has stages."""

    costs: tuple[Values | float, ...]
    speeds: tuple[Values | float, ...]
    safe_cost: Values | float
    may_wait: npt.NDArray[np.bool_] | None

    def on_lanes(self, lanes: list[int], after: Values, launch: float) -> Values:
        """The values of a step on lanes that are alike, of which ``launch`` steps are lost."""
        cost = np.array([self.costs[i] for i in lanes], np.float32)
        later = _sooner(after, 1.0 - self.speeds[lanes[0]] + launch)
        return cost.reshape(len(lanes), -1, 1) + later

    def idle(self, values: Values) -> Values:
        """``values`` where the job may wait."""
        if self.may_wait is not None:
            values[~self.may_wait] = INFEASIBLE_COST
        return values


def _figures(terms: DeadlineProblem, n: int, work_left: Rows) -> _Figures:
    """Of the step that begins with n to go, with so much work left in each row."""
    rises = tuple(factor(lane.tariff, n) for lane in terms.lanes)
    safe_rises = factor(terms.safe_tariff, n)
    if not terms.stages:
        costs = tuple(lane.cost * rise for lane, rise in zip(terms.lanes, rises, strict=True))
        speeds = tuple(lane.speed for lane in terms.lanes)
        return _Figures(costs, speeds, terms.safe_cost * safe_rises, None)
    ends = np.array([stage.ends for stage in terms.stages[:-1]])
    stage_of = (work_left[:, None] <= ends).sum(axis=1)

    def by_row(figures: list[float]) -> Values:
        rows: Values = np.asarray(figures, np.float32)[stage_of]
        return rows

    begins = by_row([stage.begins for stage in terms.stages])
    may_wait = np.array([stage.may_wait for stage in terms.stages])[stage_of]
    return _Figures(
        tuple(
            by_row([stage.costs[i] * rise for stage in terms.stages])
            for i, rise in enumerate(rises)
        ),
        tuple(by_row([stage.speeds[i] for stage in terms.stages]) for i in range(len(terms.lanes))),
        by_row([stage.safe_cost * safe_rises for stage in terms.stages])[:, None],
        may_wait | (work_left > begins - 1.0),
    )


def _alike(terms: DeadlineProblem) -> list[list[int]]:
    """The lanes, together where all their work is as fast and their launches take as long."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for i, lane in enumerate(terms.lanes):
        speeds = (stage.speeds[i] for stage in terms.stages)
        groups.setdefault((lane.start, lane.speed, *speeds), []).append(i)
    return list(groups.values())


def _block(place: int, classes: int) -> slice:
    return slice(place * classes, (place + 1) * classes)


def _columns_by_block(matrix: npt.NDArray[np.float64], classes: int) -> Values:
    """Block by block of the columns, on a first axis."""
    return matrix.reshape(len(matrix), -1, classes).swapaxes(0, 1).astype(np.float32)


def _stacked(matrices: list[npt.NDArray[np.float64]]) -> Values:
    return np.stack(matrices).astype(np.float32) if matrices else np.zeros((0, 1, 1), np.float32)


def _sooner(values: Values, steps: Values | float) -> Values:
    """The values with ``steps`` fewer to spare; with more to spare than is kept, of the most."""
    if not isinstance(steps, float):
        return _sooner_by_row(values, steps)
    if steps == 0.0:
        return values
    count, whole = values.shape[-2], math.floor(steps)
    part = steps - whole
    shifted: Values = np.empty_like(values)
    if whole < 0:
        body = max(0, count + whole)
        shifted[..., body:, :] = values[..., -1:, :]
        upper, lower = values[..., count - body :, :], values[..., count - body - 1 : -1, :]
        shifted[..., :body, :] = _mixed(upper, lower, part)
        return shifted
    lost = min(count, whole + 1 if part > 0 else whole)
    shifted[..., :lost, :] = INFEASIBLE_COST
    upper, lower = values[..., lost - whole : count - whole, :], values[..., : count - lost, :]
    shifted[..., lost:, :] = _mixed(upper, lower, part)
    return shifted


def _mixed(upper: Values, lower: Values, part: float) -> Values:
    """``part`` of the way from ``upper`` to ``lower``."""
    return upper if part == 0.0 else (1.0 - part) * upper + part * lower


def _sooner_by_row(values: Values, steps: Values) -> Values:
    last = values.shape[-2] - 1
    position = np.minimum(np.arange(last + 1) - steps, float(last))
    low = np.clip(np.floor(position).astype(np.int64), 0, last - 1)
    part = (position - low).astype(np.float32)[:, None]
    shifted: Values = (1.0 - part) * values[..., low, :] + part * values[..., low + 1, :]
    shifted[..., position < -1e-9, :] = INFEASIBLE_COST
    return shifted


def _at(values: Values, spare: float, column: int) -> float:
    """Interpolated; the most that is kept where there is more to spare, 0 where there is less."""
    last = len(values) - 1
    spare = min(max(spare, 0.0), float(last))
    low = min(int(spare), last - 1)
    part = spare - low
    return (1.0 - part) * float(values[low, column]) + part * float(values[low + 1, column])


MAX_BYTES = 48 * 2**20
"""All of them together hold about so much, as far as ``MIN_KEPT_STEPS`` allows."""
MIN_KEPT_STEPS = 6
"""For so many steps at least a program is kept, up to all of them; then it is solved again."""
VALUE_BYTES = 4


class ProgramCache:
    """Solved programs; those that no job uses are dropped."""

    def __init__(self) -> None:
        self._solved: WeakValueDictionary[int, ValueFunction] = WeakValueDictionary()
        self._count = 0

    def solved(self, wanted: DeadlineProblem, steps: float, spare: int) -> ValueFunction:
        """A program for terms like these, with so many steps to go, and so many to spare."""
        for program in reversed(list(self._solved.values())):
            enough = program.contains(steps) and program.spare >= spare
            if enough and not has_changed(program.terms, wanted):
                return program
        row_bytes = VALUE_BYTES * (spare + 1) * wanted.columns
        keep = max(MIN_KEPT_STEPS, MAX_BYTES // (row_bytes * (len(self._solved) + 1)))
        program = ValueFunction(wanted, max(1, math.ceil(steps)), spare, keep)
        self._count += 1
        self._solved[self._count] = program
        return program
