"""Prices of budgets: the first ones, found job by job, and what they charge a job.

A job that is not limited by anything that jobs share is cheapest at its own best schedule. Where
these schedules together exceed a budget its price is raised until they keep it, then bisected:
schedules on both sides of a budget are what plans that use all of it are mixed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costopt.domain.policy import Objective
from costopt.optimize.colgen.best_response import (
    BestResponse,
    cheaper_response,
    cheapest_schedule,
    cheapest_staged_schedule,
)
from costopt.optimize.colgen.capacity import SharedBudget, SharedCapacity
from costopt.optimize.colgen.master import DualValues
from costopt.optimize.colgen.menu import NO_CHARGE, JobMenu
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.rates import Array

MAX_SINGLE_ROUNDS = 9
"""Prices of work tried for a job alone: its schedule is only where the search begins."""

FIRST_SHARE, RAISE = 0.25, 4.0
"""A budget's first price, as a share of what its unit is worth on average, and the factor to the
next.
"""

MAX_PRICES, CLOSE = 14, 1.05
"""Prices tried at the most, and the ratio of two that need nothing between them."""

Alone = tuple[JobSchedule | None, ...]


@dataclass(frozen=True, slots=True)
class FirstSchedules:
    """``alone`` are schedules by job, None where a job has none, and ``duals`` their prices.

    ``others`` are (job, schedule) at other prices of budgets.
    """

    alone: Alone
    duals: DualValues
    others: tuple[tuple[int, JobSchedule], ...] = ()


def budget_charge(job: int, prices: Array, budgets: Sequence[SharedBudget]) -> Objective:
    """Return what budgets charge the job on top of the objective at these prices."""
    charge = NO_CHARGE
    for price, budget in zip(prices.tolist(), budgets, strict=True):
        if job in budget.jobs and price:
            charge = charge.plus(budget.weights, price)
    return charge


def unconstrained_schedules(
    menus: Menus,
    capacity: SharedCapacity,
    budgets: Sequence[SharedBudget],
    known: Mapping[int, JobSchedule],
) -> FirstSchedules:
    """Return each job's cheapest schedule as if it were alone, at prices at which budgets hold.

    ``known`` schedules are taken as they are, with prices of 0. Where no prices make the schedules
    keep the budgets they are those without prices.
    """
    search = _PriceSearch(menus, capacity, budgets, known)
    free = search.at(np.zeros(len(budgets)))
    return search.priced(free) if budgets else free


class _PriceSearch:
    def __init__(
        self,
        menus: Menus,
        capacity: SharedCapacity,
        budgets: Sequence[SharedBudget],
        known: Mapping[int, JobSchedule],
    ) -> None:
        self._menus, self._capacity, self._budgets, self._known = menus, capacity, budgets, known
        self._seen: list[tuple[int, JobSchedule]] = []

    def at(self, prices: Array, guess: FirstSchedules | None = None) -> FirstSchedules:
        """Return every job's cheapest schedule at these prices of budgets."""
        alone: list[JobSchedule | None] = []
        work: list[Array] = []
        for job in range(len(self._menus)):
            menu = self._menus[job]
            if job in self._known:
                work.append(np.zeros(len(menu.work)))
                alone.append(self._known[job])
                continue
            found = self._response(job, prices, guess)
            work.append(np.ones(len(menu.work)) if found is None else found.work)
            alone.append(None if found is None else found.schedule)
        self._seen.extend((job, each) for job, each in enumerate(alone) if each is not None)
        shared = np.zeros(self._capacity.active.shape)
        duals = DualValues(tuple(work), shared, prices, np.zeros(len(self._menus)))
        return FirstSchedules(tuple(alone), duals)

    def _response(
        self, job: int, prices: Array, guess: FirstSchedules | None
    ) -> BestResponse | None:
        menu: JobMenu = self._menus[job].charged(budget_charge(job, prices, self._budgets))
        work = None if guess is None else guess.duals.work[job]
        found = cheapest_schedule(menu, guess=work, rounds=MAX_SINGLE_ROUNDS)
        if len(menu.work) == 1:
            return found
        return cheaper_response(found, cheapest_staged_schedule(menu))

    def priced(self, free: FirstSchedules) -> FirstSchedules:
        """Return schedules that keep the budgets, beginning with those without prices."""
        spent = self._spent(free.alone)
        score = sum(each.total_score for each in free.alone if each is not None)
        low, high = np.zeros(len(spent)), np.full(len(spent), np.inf)
        first = FIRST_SHARE * max(score, 1e-9) / np.maximum(spent, 1e-12)
        most = np.array([budget.most for budget in self._budgets])
        best, last = None, free
        for _ in range(MAX_PRICES):
            prices, over = last.duals.budget, self._spent(last.alone) > most
            if not over.any():
                best = last
            low, high = np.where(over, prices, low), np.where(over, high, prices)
            if (high <= low * CLOSE).all():
                break
            raised = np.where(over, np.maximum(prices * RAISE, first), prices)
            last = self.at(np.where(np.isfinite(high), (low + high) / 2, raised), last)
        if best is None:
            return free
        return FirstSchedules(best.alone, best.duals, tuple(self._seen))

    def _spent(self, alone: Alone) -> Array:
        return np.array(
            [
                sum(budget.spent(job, each) for job, each in enumerate(alone) if each is not None)
                for budget in self._budgets
            ]
        )
