"""The cheapest schedule by which one job does all its work, at given prices of what is shared.

The price of work is raised until the best path does the work, and lowered until it just does; what
the last path does too much is trimmed. Several stages each have their own price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costopt.optimize.fleet.menu import JobMenu
from costopt.optimize.fleet.path import solve_pricing
from costopt.optimize.fleet.prices import PricingDuals
from costopt.optimize.fleet.schedule import JobSchedule, schedule_of, trim_excess_work
from costopt.optimize.rates import Array

ROUNDS = 16
STEP = 2.0
"""The factor of the first steps, which double with each further one."""

LAST = 3
"""Of the schedules that do the work the last ones found are trimmed: they overdo it the least."""

CLOSE = 1.01
"""Prices of work this near to each other differ in nothing that trimming would not mend."""

BEYOND = 1e6
"""Over the cheapest unit's cost: a price at which the job does all that it can."""


@dataclass(frozen=True, slots=True)
class BestResponse:
    """``cost`` is the schedule's objective with what it pays for shared limits and budgets."""

    schedule: JobSchedule
    work: Array
    cost: float


def cheapest_schedule(
    menu: JobMenu,
    shared: Array | None = None,
    *,
    usd: float = 0.0,
    kwh: float = 0.0,
    guess: Array | None = None,
    rounds: int = ROUNDS,
) -> BestResponse | None:
    """The cheapest schedule found that serves the job; None where even all it can do is short."""
    floor = min_unit_cost(menu)
    if floor is None:
        return None
    price = floor * STEP if guess is None else np.maximum(guess, floor * 1e-3)
    low, high = np.zeros(len(floor)), np.full(len(floor), np.inf)
    enough: list[tuple[JobSchedule, Array]] = []
    for turn in range(rounds):
        whole = schedule_of(menu, solve_pricing(menu, PricingDuals(price, shared, usd, kwh)))
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
        best = cheaper_response(
            best, _judged(menu, trim_excess_work(menu, whole), price, shared, usd, kwh)
        )
    return best


def min_unit_cost(menu: JobMenu) -> Array | None:
    """(Q,): the cheapest expected unit of each stage in any slot; None where a stage has no row."""
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
    menu: JobMenu, schedule: JobSchedule, price: Array, shared: Array | None, usd: float, kwh: float
) -> BestResponse:
    cost = schedule.total_score + usd * float(schedule.usd.sum()) + kwh * float(schedule.kwh.sum())
    if shared is not None:
        cost += float(shared[schedule.slot, menu.positions(schedule.row)].sum())
    return BestResponse(schedule, price, cost)


def cheaper_response(one: BestResponse | None, other: BestResponse | None) -> BestResponse | None:
    """The cheaper one."""
    if one is None or other is None:
        return one or other
    return other if other.cost < one.cost else one
