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

Of several pools, each is a lane i with its own S. W and O also know which lane could be launched:
the cheapest that is up, or that none is. When a lane is lost, the others are looked through from
the cheapest, each being up with its share of the time, independently; while none is up, or only a
dearer one, a lane comes back at its rate, those beyond the fastest counting half since shortage is
shared. A lane that is cheaper than the one that runs is weighed when it is there, not before.

The hysteresis that published policies put in by
hand (Uniform Progress, NSDI'24) follows from the recursion: a change of mode costs a start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costopt.market.lifetime import Rates

Values = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]

IMPOSSIBLE = 1e7
"""Dearer than anything that is possible, and finite so that it can be interpolated away."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A spot gang. ``cost`` is per step, ``speed`` in that of the safe gang, ``start`` in steps.

    ``share`` is that of the time in which its pool has capacity. A pool that has been down for long
    comes back no faster than at the class of age ``down_class``, whichever lanes are up.
    """

    cost: float
    speed: float
    start: float
    rates: Rates
    share: float = 1.0
    down_class: int = 0

    @property
    def cost_of_work(self) -> float:
        """Per step of the safe gang's work."""
        return self.cost / self.speed


@dataclass(frozen=True, slots=True)
class Terms:
    """What the program is solved for. All lanes have the same classes of age.

    ``guard`` is g. ``hop_class`` is the class of age of a pool that is gone to when one is lost.
    """

    step_h: float
    lanes: tuple[Lane, ...]
    safe_cost: float
    guard: float
    hop_class: int = 0


class Program:
    """Values after a decision with n steps to go, for the ``keep`` n that end with ``steps``."""

    def __init__(self, terms: Terms, steps: int, spare: int, keep: int = 96) -> None:
        self.terms = terms
        self.steps = steps
        self.first = max(0, steps - keep + 1)
        self._recursion = _Recursion(terms, spare)
        self._kept: list[_After] = []
        for n in range(steps + 1):
            after = self._recursion.step(n)
            if n >= self.first:
                self._kept.append(after)

    def covers(self, steps: float) -> bool:
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
        self, steps: float, spare: float, table: Callable[[_After], Table], column: int
    ) -> float:
        """Interpolated between the whole n around ``steps``, with the same spare time in both."""
        low = min(max(math.floor(steps), self.first), self.steps)
        high = min(low + 1, self.steps)
        part = min(max(steps - low, 0.0), 1.0)
        below = _at(table(self._kept[low - self.first]), spare, column)
        above = _at(table(self._kept[high - self.first]), spare, column)
        return (1.0 - part) * below + part * above

    def _column(self, lane: int | None, of_age: int) -> int:
        block = len(self.terms.lanes) if lane is None else lane
        return block * self._recursion.classes + of_age


@dataclass(frozen=True, slots=True)
class _After:
    """Values by spare steps × class of age: ``spot`` lane by lane on a first axis.

    In ``wait`` and ``safe`` the classes of one lane come after those of the other, down last.
    """

    spot: Table
    wait: Table
    safe: Table


class _Recursion:
    """One step after the other, from the deadline backwards."""

    def __init__(self, terms: Terms, spare: int) -> None:
        self.terms = terms
        self.classes = len(terms.lanes[0].rates.from_h)
        self._u = np.arange(spare + 1, dtype=np.float64)
        self._market = _market(terms)
        self._stays = np.stack([_lasting(lane.rates, terms.step_h) for lane in terms.lanes])
        self._lost = np.stack([_lost(terms, lane) for lane in range(len(terms.lanes))])
        shape = (spare + 1, (len(terms.lanes) + 1) * self.classes)
        self._after_spot = np.zeros((len(terms.lanes), spare + 1, self.classes))
        self._after_wait, self._after_safe = np.zeros(shape), np.zeros(shape)

    def step(self, n: int) -> _After:
        """Values after a decision with n steps to go; call with n = 0, 1, 2, …"""
        if n > 0:
            spot, wait, safe = self._decide(n)
            self._after_spot = spot @ self._stays + wait[None] @ self._lost
            self._after_wait, self._after_safe = wait @ self._market, safe @ self._market
        return _After(
            self._after_spot.astype(np.float32),
            self._after_wait.astype(np.float32),
            self._after_safe.astype(np.float32),
        )

    def _decide(self, n: int) -> tuple[Values, Values, Values]:
        terms, guard = self.terms, self.terms.guard
        to_safe = terms.safe_cost + self._after_safe
        wait = np.minimum(to_safe, _sooner(self._after_wait, 1.0))
        safe = np.minimum(to_safe, _sooner(self._after_wait, 1.0 + guard))
        spot = np.empty_like(self._after_spot)
        for i, lane in enumerate(terms.lanes):
            after, up = lane.cost + self._after_spot[i], self._block(i)
            slower = 1.0 - lane.speed
            wait[:, up] = np.minimum(wait[:, up], _sooner(after, slower + lane.start))
            safe[:, up] = np.minimum(safe[:, up], _sooner(after, slower + lane.start + guard))
            spot[i] = np.minimum(wait[:, up], _sooner(after, slower))
        done, safe_done = n - self._u - guard <= 1e-9, n - self._u <= 1e-9
        spot[:, done], wait[done], safe[safe_done] = 0.0, 0.0, 0.0
        return spot, wait, safe

    def _block(self, lane: int) -> slice:
        return slice(lane * self.classes, (lane + 1) * self.classes)


def _sooner(values: Values, steps: float) -> Values:
    """The values with ``steps`` fewer to spare; with more to spare than is kept, of the most."""
    if steps == 0.0:
        return values
    whole = math.floor(steps)
    part = steps - whole
    rows = np.arange(len(values)) - whole
    upper = np.minimum(rows, len(values) - 1)
    lower = np.minimum(rows - 1, len(values) - 1) if part > 0 else upper
    shifted = (1.0 - part) * values[np.maximum(upper, 0)] + part * values[np.maximum(lower, 0)]
    shifted[lower < 0] = IMPOSSIBLE
    return shifted


def _ending(per_hour: tuple[float, ...], step_h: float) -> Values:
    """The chance, by class of age, that a period ends within a step."""
    return -np.expm1(-np.asarray(per_hour) * step_h)


def _lasting(rates: Rates, step_h: float) -> Values:
    """Transposed transitions among the classes of a period up that does not end."""
    lasts = 1.0 - _ending(rates.up_per_hour, step_h)
    return _aging(rates.from_h, step_h) * lasts


def _aging(from_h: tuple[float, ...], step_h: float) -> Values:
    """Transposed transitions from class to class of a period that goes on."""
    classes = len(from_h)
    older = np.append(np.minimum(1.0, step_h / np.diff(from_h)), 0.0)
    matrix: Values = np.diag(1.0 - older)
    matrix[np.arange(1, classes), np.arange(classes - 1)] = older[:-1]
    return matrix


def _lost(terms: Terms, lane: int) -> Values:
    """Transposed transitions from a lane that is up to what can be launched once it has ended."""
    ends = _ending(terms.lanes[lane].rates.up_per_hour, terms.step_h)
    classes = len(ends)
    matrix = np.zeros(((len(terms.lanes) + 1) * classes, classes))
    none_before = 1.0
    for other in _cheapest_first(terms):
        if other != lane:
            share = terms.lanes[other].share
            matrix[other * classes + terms.hop_class] = ends * none_before * share
            none_before *= 1.0 - share
    matrix[len(terms.lanes) * classes] = ends * none_before
    return matrix


def _market(terms: Terms) -> Values:
    """Transposed transitions of what can be launched, while the job runs on none of it."""
    lanes, classes = terms.lanes, len(terms.lanes[0].rates.from_h)
    order = _cheapest_first(terms)
    matrix = np.zeros(((len(lanes) + 1) * classes,) * 2)
    for place, i in enumerate(order):
        block = slice(i * classes, (i + 1) * classes)
        coming = _coming(terms, order[:place])
        worse = 1.0 - coming[:, terms.hop_class].sum()
        matrix[block, block] = _lasting(lanes[i].rates, terms.step_h) * worse
        lasts = 1.0 - _ending(lanes[i].rates.up_per_hour, terms.step_h)
        for j in order[:place]:
            matrix[j * classes, block] += lasts * coming[j, terms.hop_class]
        matrix[:, block] += _lost(terms, i)
    down, coming = slice(len(lanes) * classes, None), _coming(terms, order)
    for j in order:
        matrix[j * classes, down] = coming[j]
    aging = _aging(lanes[0].rates.from_h, terms.step_h)
    matrix[down, down] = aging * (1.0 - coming.sum(axis=0))
    return matrix


def _cheapest_first(terms: Terms) -> list[int]:
    return sorted(range(len(terms.lanes)), key=lambda i: (terms.lanes[i].cost_of_work, i))


def _coming(terms: Terms, lanes: list[int]) -> Values:
    """The chance, by lane and class of age of the period down, that it is the next to come back."""
    rates = np.zeros((len(terms.lanes), len(terms.lanes[0].rates.from_h)))
    for i in lanes:
        lane = terms.lanes[i]
        rates[i] = lane.rates.down_per_hour
        rates[i, : lane.down_class] = rates[i, lane.down_class]
    total, fastest = rates.sum(axis=0), rates.max(axis=0)
    together = 0.5 * (total + fastest)
    any_comes = -np.expm1(-together * terms.step_h)
    chances: Values = rates / np.maximum(total, 1e-12) * any_comes
    return chances


def _at(values: Table, spare: float, column: int) -> float:
    """Interpolated; the most that is kept where there is more to spare, 0 where there is less."""
    last = len(values) - 1
    spare = min(max(spare, 0.0), float(last))
    low = min(int(spare), last - 1)
    part = spare - low
    return (1.0 - part) * float(values[low, column]) + part * float(values[low + 1, column])
