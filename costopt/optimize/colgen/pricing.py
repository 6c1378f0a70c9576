"""The pricing problem: the best schedule of one job at given prices of work and of shared limits.

A longest path over (slot, stage, gang), solved backwards. Running gang g through slot t in stage q
is worth

    reward[q][t, g] = max over its power caps of  work_price[q] · units − score − shared prices

and starting it there costs ``start[q][t, g]``. A running gang continues, in the same stage or a
later one, or the job leaves it: for another gang at once, or to wait where the stage may pause. The
value of the best path is what the Lagrangian bound needs; the path is a new column.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.menu import INFEASIBLE_COST, JobMenu, PricingDuals
from costopt.optimize.rates import Array


@dataclass(frozen=True, slots=True)
class PricingSolution:
    """The best path: ``value`` is its reward at the prices, at least 0 as a job may do nothing.

    ``steps`` has shape (n, 4), one row per slot used: the slot, the stage, the place of the row in
    the menu, and 1 where the gang starts there.
    """

    value: float
    steps: NDArray[np.int64]


def solve_pricing(menu: JobMenu, prices: PricingDuals) -> PricingSolution:
    """Return the path of the greatest value."""
    if menu.compiled:
        from costopt.optimize.colgen.compiled_pricing import solve_compiled

        return PricingSolution(*solve_compiled(menu, prices))
    return _Search(menu, _worths(menu, prices), prices).path()


def has_numba() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@dataclass(frozen=True, slots=True)
class _Worth:
    """Of a stage: ``by_row`` (T, N), ``reward`` (T, G) of the best row of each gang in the slot,
    ``loss`` (T, G) of a start, which takes its hours out of the work and the pay of the slot.
    """

    by_row: Array
    reward: Array
    loss: Array


def _worths(menu: JobMenu, prices: PricingDuals) -> list[_Worth]:
    pay, shared = menu.pay, prices.shared
    if shared is not None:
        pay = pay + shared
    hours = np.maximum(menu.hours, 1e-12)[:, None]
    worths: list[_Worth] = []
    for number, price in enumerate(prices.work.tolist()):
        units = menu.units[number]
        by_row = np.outer(menu.hours, price * units)
        by_row -= pay
        if not units.all():
            by_row[:, units <= 0] = -INFEASIBLE_COST
        reward = _by_gang(menu, by_row)
        hourly = (
            reward if shared is None else reward + _shared_of_best(menu, by_row, reward, shared)
        )
        lost = np.where(reward > -INFEASIBLE_COST / 2, menu.start_h * hourly / hours, 0.0)
        worths.append(_Worth(by_row, reward, menu.start_score + lost))
    return worths


def _by_gang(menu: JobMenu, by_row: Array) -> Array:
    if len(menu.first) == len(menu.rows):
        return by_row
    best: Array = np.maximum.reduceat(by_row, menu.first, axis=1)
    return best


def _shared_of_best(menu: JobMenu, by_row: Array, best: Array, shared: Array) -> Array:
    """(T, G): what the best row of each gang pays for what is shared."""
    if len(menu.first) == len(menu.rows):
        return shared
    first: Array = shared[:, menu.first]
    if np.array_equal(shared, first[:, menu.gang]):
        return first
    at_best = np.where(by_row >= best[:, menu.gang], shared, -np.inf)
    found: Array = np.maximum.reduceat(at_best, menu.first, axis=1)
    return found


class _Search:
    """The recursion and the walk along its solution.

    ``run[t][q]`` (G,) is the value of running each gang from slot t on in stage q, ``idle[t][q]``
    that of holding none with stage q to come or under way, ``begin`` that of a start in slot t.
    """

    def __init__(self, menu: JobMenu, worths: list[_Worth], prices: PricingDuals) -> None:
        self._menu, self._worths, self._prices = menu, worths, prices
        slots, stages, gangs = len(menu.slots), len(worths), len(menu.first)
        self._bounds: list[int] = [*menu.first.tolist(), len(menu.rows)]
        self._run = np.full((slots + 1, stages, gangs), -INFEASIBLE_COST)
        self._idle = np.zeros((slots + 1, stages + 1))
        self._begin = np.full((slots + 1, stages), -INFEASIBLE_COST)
        self._solve()

    def _solve(self) -> None:
        run, stages = self._run, len(self._worths)
        may_pause = self._menu.may_pause.tolist()
        idle = [0.0] * (stages + 1)
        begin = [-INFEASIBLE_COST] * stages
        for t in range(len(self._menu.slots) - 1, -1, -1):
            leave = [max(idle[q] if may_pause[q] else begin[q], idle[q + 1]) for q in range(stages)]
            for q in range(stages - 1, -1, -1):
                value, worth = run[t, q], self._worths[q]
                np.maximum(run[t + 1, q], leave[q], out=value)
                if q + 1 < stages:
                    np.maximum(value, run[t + 1, q + 1], out=value)
                value += worth.reward[t]
                begin[q] = float((value - worth.loss[t]).max(initial=-INFEASIBLE_COST))
                idle[q] = max(idle[q], begin[q], idle[q + 1])
            self._idle[t], self._begin[t] = idle, begin

    def path(self) -> PricingSolution:
        """Return the best path from the first slot, with the living gang or with none."""
        menu = self._menu
        value, state = float(self._idle[0, 0]), (0, -1)
        if menu.live >= 0:
            loss = self._living_loss()
            for q in range(len(self._worths)):
                kept = float(self._run[0, q, menu.live]) - loss[q]
                if kept > value:
                    value, state = kept, (q, menu.live)
        steps = np.array(self._walk(*state), dtype=np.int64)
        return PricingSolution(value, steps.reshape(-1, 4))

    def _living_loss(self) -> list[float]:
        """Return, by stage, the remaining cost of the living gang's start-up."""
        menu = self._menu
        share = min(1.0, menu.starting_h / max(float(menu.start_h[menu.live]), 1e-12))
        return [
            share * float(loss[0, menu.live]) for loss in (worth.loss for worth in self._worths)
        ]

    def _walk(self, q: int, gang: int) -> list[tuple[int, int, int, bool]]:
        steps: list[tuple[int, int, int, bool]] = []
        starts, must_begin = False, False
        for t in range(len(self._menu.slots)):
            if gang < 0:
                q, gang = self._start(t, q, must_begin)
                if q == len(self._worths):
                    break
                if gang < 0:
                    continue
                starts = True
            steps.append((t, q, self._place(t, q, gang), starts))
            starts = False
            q, gang, must_begin = self._next(t + 1, q, gang)
        return steps

    def _start(self, t: int, q: int, must_begin: bool) -> tuple[int, int]:
        """(stage, gang) begun in slot t; gang −1 to wait, stage Q where nothing more pays."""
        stages = len(self._worths)
        while q < stages:
            value = self._begin[t, q] if must_begin else self._idle[t, q]
            if value <= 0 and not must_begin:
                return stages, -1
            if self._begin[t, q] >= value:
                return q, int((self._run[t, q] - self._worths[q].loss[t]).argmax())
            if self._idle[t + 1, q] >= value:
                return q, -1
            q += 1
            must_begin = False
        return stages, -1

    def _next(self, t: int, q: int, gang: int) -> tuple[int, int, bool]:
        """(stage, gang or −1, whether the next gang must begin at once) from slot t on."""
        run, may_pause = self._run, bool(self._menu.may_pause[q])
        stage, value = q, run[t, q, gang]
        if q + 1 < len(self._worths) and run[t, q + 1, gang] > value:
            stage, value = q + 1, run[t, q + 1, gang]
        stay = self._idle[t, q] if may_pause else self._begin[t, q]
        later = self._idle[t, q + 1]
        if value >= stay and value >= later and value > -INFEASIBLE_COST / 2:
            return stage, gang, False
        return (q, -1, not may_pause) if stay >= later else (q + 1, -1, False)

    def _place(self, t: int, q: int, gang: int) -> int:
        """The best row of the gang in the slot."""
        begin, end = self._bounds[gang], self._bounds[gang + 1]
        if end - begin == 1:
            return begin
        return begin + int(self._worths[q].by_row[t, begin:end].argmax())
