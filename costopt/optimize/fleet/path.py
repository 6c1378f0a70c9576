"""The best schedule of one job at given prices of work and of what jobs share.

A longest path over (slot, stage, gang), solved backwards. Running gang g through slot t in stage q
is worth

    reward[q][t, g] = max over its power caps of  work_price[q] · units − score − what is shared

and starting it there costs ``start[q][t, g]``. From a running gang the job goes on with it, in the
same stage or a later one, or leaves it: for another gang at once, or to wait where the stage may
pause. The value of the best path is what the Lagrangian bound needs; the path is a new column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.fleet.menu import NEVER, Menu
from costopt.optimize.rates import Array


@dataclass(frozen=True, slots=True)
class Prices:
    """Of work, (Q,), and of what is shared: ``shared`` (T, N) per slot and row of the menu, None
    for free; ``usd`` and ``kwh`` on top of the objective, for budgets.
    """

    work: Array
    shared: Array | None = None
    usd: float = 0.0
    kwh: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One slot of a path: the place of its row in the menu, and whether the gang starts there."""

    slot: int
    stage: int
    place: int
    starts: bool


@dataclass(frozen=True, slots=True)
class Path:
    """``value`` is its reward at the prices: never below 0, for the job may also do nothing."""

    value: float
    steps: tuple[Step, ...]


def best_path(menu: Menu, prices: Prices) -> Path:
    """The path of the greatest value."""
    rewards, losses, choice = _rewards(menu, prices)
    return _Search(menu, rewards, losses, choice).path()


def _rewards(
    menu: Menu, prices: Prices
) -> tuple[list[Array], list[Array], list[NDArray[np.int64] | None]]:
    """Per stage: (T, G) rewards and start losses; the best row of each gang where it has several.

    A start takes its hours out of the work and out of the pay of the slot, and costs its score.
    """
    cost, start = _costs(menu, prices)
    shared = prices.shared
    several = len(menu.first) < len(menu.rows)
    rewards: list[Array] = []
    losses: list[Array] = []
    choice: list[NDArray[np.int64] | None] = []
    for number, price in enumerate(prices.work):
        per_hour = price * menu.units[number] - cost
        worth = per_hour * menu.hours[:, None]
        if shared is not None:
            worth = worth - shared
        allowed = menu.usable & (menu.units[number] > 0)
        worth = np.where(allowed, worth, -NEVER)
        if several:
            best, place = _by_gang(menu, worth)
            hourly = np.take_along_axis(per_hour, place, axis=1)
        else:
            best, place, hourly = worth, None, per_hour
        rewards.append(best)
        losses.append(start + menu.start_h * hourly)
        choice.append(place)
    return rewards, losses, choice


def _costs(menu: Menu, prices: Prices) -> tuple[Array, Array]:
    """(T, N) of a held hour and (T, G) of a start, the prices of budgets included."""
    cost, start = menu.score, menu.start_score
    if prices.usd or prices.kwh:
        table, rows, lead = menu.part.table, menu.rows, menu.rows[menu.first]
        stretch = table.stretch[rows]
        cost = (
            cost
            + (prices.usd * menu.tariff.usd_per_hour(rows) + prices.kwh * table.kwh_per_hour[rows])
            / stretch
        )
        start = (
            start
            + prices.usd * menu.tariff.usd_per_start(lead)
            + prices.kwh * table.kwh_per_start[lead]
        )
    return cost, start


def _by_gang(menu: Menu, worth: Array) -> tuple[Array, NDArray[np.int64]]:
    """(T, G): the best of each gang's rows and its place."""
    best = np.maximum.reduceat(worth, menu.first, axis=1)
    is_best = worth >= best[:, menu.gang]
    place = np.where(is_best, np.arange(len(menu.rows)), len(menu.rows))
    return best, np.minimum.reduceat(place, menu.first, axis=1)


class _Search:
    """The recursion and the walk along its solution.

    ``run[t][q]`` (G,) is the value of running each gang from slot t on in stage q, ``idle[t][q]``
    that of holding none with stage q to come or under way, ``begin`` that of a start in slot t.
    """

    def __init__(
        self,
        menu: Menu,
        rewards: list[Array],
        losses: list[Array],
        choice: list[NDArray[np.int64] | None],
    ) -> None:
        self._menu, self._rewards, self._losses, self._choice = menu, rewards, losses, choice
        slots, stages, gangs = len(menu.slots), len(rewards), len(menu.first)
        self._run = np.full((slots + 1, stages, gangs), -NEVER)
        self._idle = np.zeros((slots + 1, stages + 1))
        self._begin = np.full((slots + 1, stages), -NEVER)
        self._solve()

    def _solve(self) -> None:
        menu, run, idle = self._menu, self._run, self._idle
        stages = len(self._rewards)
        for t in range(len(menu.slots) - 1, -1, -1):
            for q in range(stages - 1, -1, -1):
                onward = run[t + 1, q]
                if q + 1 < stages:
                    onward = np.maximum(onward, run[t + 1, q + 1])
                value = self._rewards[q][t] + np.maximum(onward, self._leave(t + 1, q))
                run[t, q] = value
                self._begin[t, q] = (value - self._losses[q][t]).max(initial=-NEVER)
                idle[t, q] = max(idle[t + 1, q], self._begin[t, q], idle[t, q + 1])

    def _leave(self, t: int, q: int) -> float:
        """The value of having let the gang go before slot t, out of stage q."""
        stay = self._idle[t, q] if self._menu.may_pause[q] else self._begin[t, q]
        return float(max(stay, self._idle[t, q + 1]))

    def path(self) -> Path:
        """From the first slot: with the living gang, if that is worth it, or with none."""
        menu = self._menu
        value, state = float(self._idle[0, 0]), (0, -1)
        if menu.live >= 0:
            loss = self._living_loss()
            for q in range(len(self._rewards)):
                kept = float(self._run[0, q, menu.live]) - loss[q]
                if kept > value:
                    value, state = kept, (q, menu.live)
        return Path(value, tuple(self._walk(*state)))

    def _living_loss(self) -> list[float]:
        """What is left to pay of the living gang's start."""
        menu = self._menu
        share = min(1.0, menu.starting_h / max(float(menu.start_h[menu.live]), 1e-12))
        return [share * float(loss[0, menu.live]) for loss in self._losses]

    def _walk(self, q: int, gang: int) -> list[Step]:
        steps: list[Step] = []
        starts = False
        t, slots = 0, len(self._menu.slots)
        must_begin = False
        while t < slots:
            if gang < 0:
                q, gang = self._start(t, q, must_begin)
                if q == len(self._rewards):
                    break
                if gang < 0:
                    t += 1
                    continue
                starts = True
            steps.append(Step(t, q, self._place(t, q, gang), starts))
            starts = False
            q, gang, must_begin = self._next(t + 1, q, gang)
            t += 1
        return steps

    def _start(self, t: int, q: int, must_begin: bool) -> tuple[int, int]:
        """(stage, gang) begun in slot t; gang −1 to wait, stage Q where nothing more pays."""
        stages = len(self._rewards)
        while q < stages:
            value = self._begin[t, q] if must_begin else self._idle[t, q]
            if value <= 0 and not must_begin:
                return stages, -1
            if self._begin[t, q] >= value:
                return q, int(np.argmax(self._run[t, q] - self._losses[q][t]))
            if self._idle[t + 1, q] >= value:
                return q, -1
            q += 1
            must_begin = False
        return stages, -1

    def _next(self, t: int, q: int, gang: int) -> tuple[int, int, bool]:
        """(stage, gang or −1, whether the next gang must begin at once) from slot t on."""
        stages, run = len(self._rewards), self._run
        best = self._leave(t, q)
        onward = [(float(run[t, s, gang]), s) for s in (q, q + 1) if s < stages]
        value, stage = max(onward, key=lambda pair: (pair[0], -pair[1]))
        if value >= best and value > -NEVER / 2:
            return stage, gang, False
        stay = self._idle[t, q] if self._menu.may_pause[q] else self._begin[t, q]
        if stay >= self._idle[t, q + 1]:
            return q, -1, not bool(self._menu.may_pause[q])
        return q + 1, -1, False

    def _place(self, t: int, q: int, gang: int) -> int:
        choice = self._choice[q]
        return gang if choice is None else int(choice[t, gang])
