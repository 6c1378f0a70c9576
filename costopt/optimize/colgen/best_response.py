"""The cheapest schedule with which one job does all its work, at given prices of shared limits.

The price of work is raised until the best path does the work, then lowered until it only just does;
the excess work of the last path is trimmed.

With several stages, the prices of work of the stages compete for the same slots, so that no set of
prices may make each stage do exactly its work. Each stage therefore gets a price of its own and the
slots between its handovers for itself; the handovers are moved, one after the other and by ever
smaller steps, to where the total cost is least.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.colgen.menu import JobMenu, PricingDuals
from costopt.optimize.colgen.pricing import PricingSolution, solve_pricing
from costopt.optimize.colgen.schedule import JobSchedule, schedule_of, trim_excess_work
from costopt.optimize.rates import Array

ROUNDS = 16
STEP = 2.0
"""The factor of the first steps, which double with each further one."""

LAST = 3
"""Of the schedules that do the work the last ones found are trimmed: they overdo it the least."""

CLOSE = 1.01
"""Prices of work within this ratio differ only by what trimming corrects."""

BEYOND = 1e6
"""Over the cheapest unit's cost: a price at which the job does all that it can."""


@dataclass(frozen=True, slots=True)
class BestResponse:
    """``cost`` is the schedule's objective with what it pays for shared limits and budgets."""

    schedule: JobSchedule
    work: Array
    cost: float


def cheapest_schedule(
    menu: JobMenu, shared: Array | None = None, *, guess: Array | None = None, rounds: int = ROUNDS
) -> BestResponse | None:
    """Return the cheapest schedule found that serves the job; None where none does all the work."""
    floor = min_unit_cost(menu)
    if floor is None:
        return None
    price = floor * STEP if guess is None else np.maximum(guess, floor * 1e-3)
    low, high = np.zeros(len(floor)), np.full(len(floor), np.inf)
    enough: list[tuple[JobSchedule, Array]] = []
    for turn in range(rounds):
        whole = schedule_of(menu, solve_pricing(menu, PricingDuals(price, shared)))
        lacking = whole.work < menu.work * (1 - 1e-9)
        if not lacking.any():
            enough.append((whole, price))
        low, high = np.where(lacking, price, low), np.where(lacking, high, price)
        if enough and (high <= low * CLOSE).all():
            break
        if not enough and (price[lacking] > floor[lacking] * BEYOND).any():
            return None
        price = _next_price(price, low, high, STEP ** (1 + turn // 2), floor)
    best: BestResponse | None = None
    for whole, price in enough[-LAST:]:
        best = cheaper_response(best, _judged(menu, trim_excess_work(menu, whole), price, shared))
    return best


def min_unit_cost(menu: JobMenu) -> Array | None:
    """Return the least expected cost of a unit of each stage in any slot, shape (Q,).

    Q counts stages. The result is None where a stage has no row.
    """
    per_hour = menu.pay / np.maximum(menu.hours, 1e-12)[:, None]
    cheapest_score = np.where(menu.usable, per_hour, np.inf).min(axis=0, initial=np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_unit = np.where(menu.units > 0, cheapest_score / menu.units, np.inf)
    floor: Array = per_unit.min(axis=1, initial=np.inf)
    return np.maximum(floor, 1e-12) if np.isfinite(floor).all() else None


def _next_price(price: Array, low: Array, high: Array, factor: float, floor: Array) -> Array:
    middle = np.sqrt(np.maximum(low, 1e-300) * np.where(np.isfinite(high), high, 1.0))
    below = np.maximum(price / factor, floor * 1e-3)
    return np.where(
        ~np.isfinite(high), price * factor, np.where(low <= 0, np.minimum(below, high), middle)
    )


def _judged(
    menu: JobMenu, schedule: JobSchedule, price: Array, shared: Array | None
) -> BestResponse:
    cost = schedule.total_score + float(schedule.scored_by(menu.charge).sum())
    if shared is not None:
        cost += float(shared[schedule.slot, menu.positions(schedule.row)].sum())
    return BestResponse(schedule, price, cost)


def cheaper_response(one: BestResponse | None, other: BestResponse | None) -> BestResponse | None:
    """Return the cheaper of the two responses."""
    if one is None or other is None:
        return one or other
    return other if other.cost < one.cost else one


WINDOW_ROUNDS = 10
"""Prices of work that are tried for a stage in its window: with 6 the schedule of a job in two
phases over 300 pools cost 7 % more than with 10, with 16 as much."""


def cheapest_staged_schedule(
    menu: JobMenu, shared: Array | None = None, *, stop_at: float = math.inf
) -> BestResponse | None:
    """Return the cheapest schedule found; None where no handovers let all stages finish.

    From ``stop_at`` on, of the clock ``time.perf_counter``, the first one found is not improved.
    """
    return _HandoverSearch(menu, shared, stop_at).run()


class _HandoverSearch:
    def __init__(self, menu: JobMenu, shared: Array | None, stop_at: float) -> None:
        self._menu, self._shared, self._stop_at = menu, shared, stop_at
        self._seen: dict[tuple[int, ...], BestResponse | None] = {}

    def run(self) -> BestResponse | None:
        """Search, starting with handovers in proportion to each stage's time at its fastest."""
        slots = np.flatnonzero(self._menu.hours > 0)
        if len(slots) < 1:
            return None
        needed = self._needed_h()
        if not np.isfinite(needed).all():
            return None
        first, last = int(slots[0]), int(slots[-1]) + 1
        at = _proportional(needed, first, last)
        step = max(1, (last - first) // 3)
        best = self._at(at)
        while step >= 1:
            moved = False
            for boundary in range(len(at)):
                for by in (-step, step):
                    if best is not None and time.perf_counter() > self._stop_at:
                        return best
                    other = self._shifted(at, boundary, by, first, last)
                    found = self._at(other)
                    if found is not None and (best is None or found.cost < best.cost * (1 - 1e-9)):
                        at, best, moved = other, found, True
            step = step if moved else step // 2
        return best

    def _needed_h(self) -> Array:
        """(Q,): hours of each stage at its fastest; ∞ where no row of the menu can run it."""
        menu = self._menu
        usable = menu.usable.any(axis=0)
        fastest = np.where(usable, menu.units, 0.0).max(axis=1, initial=0.0)
        needed: Array = np.full(len(menu.work), np.inf)
        np.divide(menu.work, fastest, out=needed, where=fastest > 0)
        return needed

    def _shifted(
        self, at: tuple[int, ...], boundary: int, by: int, first: int, last: int
    ) -> tuple[int, ...]:
        moved = list(at)
        moved[boundary] = min(max(at[boundary] + by, first), last)
        for i in range(boundary + 1, len(at)):
            moved[i] = max(moved[i], moved[boundary])
        for i in range(boundary):
            moved[i] = min(moved[i], moved[boundary])
        return tuple(moved)

    def _at(self, handovers: tuple[int, ...]) -> BestResponse | None:
        if handovers not in self._seen:
            self._seen[handovers] = self._evaluated(handovers)
        return self._seen[handovers]

    def _evaluated(self, handovers: tuple[int, ...]) -> BestResponse | None:
        menu = self._menu
        edges = (0, *handovers, len(menu.slots))
        steps = np.zeros((0, 4), dtype=np.int64)
        work: list[float] = []
        for stage, (begin, end) in enumerate(pairwise(edges)):
            carried = len(steps) > 0 and steps[-1, 0] + 1 == begin
            live = int(menu.gang[steps[-1, 2]]) if carried else -1
            window = menu.window(begin, end, stage, live)
            found = self._of_window(window, begin, end) if end > begin else None
            if found is None:
                return None
            work.append(float(found.work[0]))
            steps = np.vstack((steps, _steps(window, found.schedule, begin, stage)))
        schedule = trim_excess_work(menu, schedule_of(menu, PricingSolution(0.0, steps)))
        return _judged(menu, schedule, np.array(work), self._shared)

    def _of_window(self, window: JobMenu, begin: int, end: int) -> BestResponse | None:
        by_slot = self._shared
        return cheapest_schedule(
            window, None if by_slot is None else by_slot[begin:end], rounds=WINDOW_ROUNDS
        )


def _proportional(needed_h: Array, first: int, last: int) -> tuple[int, ...]:
    """Handovers that give each stage a share of the slots like that of its hours."""
    shares = np.cumsum(needed_h)[:-1] / needed_h.sum()
    return tuple(np.rint(first + shares * (last - first)).astype(int).tolist())


def _steps(window: JobMenu, schedule: JobSchedule, begin: int, stage: int) -> NDArray[np.int64]:
    """The schedule of a window as steps of the whole."""
    stages = np.full(len(schedule), stage)
    places = window.positions(schedule.row)
    return np.column_stack((schedule.slot + begin, stages, places, schedule.starts))
