"""Schedules of jobs side by side, within every limit that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from costopt.optimize.fleet.budget import SharedBudget
from costopt.optimize.fleet.capacity import NodeSlotPrices, SharedCapacity
from costopt.optimize.fleet.generation import budget_prices
from costopt.optimize.fleet.handover import cheapest_staged_schedule
from costopt.optimize.fleet.master import DualValues
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.response import BestResponse, cheaper_response, cheapest_schedule
from costopt.optimize.fleet.schedule import JobSchedule
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.rates import Array

MAX_COST_RATIO = 4.0
TRIES = 6
"""How often, and by which factor, a budget's price is raised until a schedule keeps it."""

SLIP = 1e-6


class SchedulePacking:
    """``schedules`` by job, and what they leave of each limit and budget.

    From ``stop_at`` on, of the clock ``time.perf_counter``, schedules are found in less time.
    """

    def __init__(
        self,
        parts: Sequence[PlannedJob],
        menus: Menus,
        capacity: SharedCapacity,
        budgets: Sequence[SharedBudget],
        stop_at: float = math.inf,
    ) -> None:
        self._parts, self._menus, self._stop_at = parts, menus, stop_at
        self._capacity, self._budgets = capacity, budgets
        self.schedules: dict[int, JobSchedule] = {}
        self._usage: dict[int, Array] = {}
        self._priced: DualValues | None = None
        self._prices: dict[tuple[str, float], NodeSlotPrices] = {}
        self.left = capacity.empty()
        self.money = np.array([budget.most for budget in budgets])

    @property
    def now(self) -> datetime:
        """When the plan is made."""
        return self._capacity.request.now

    @property
    def score(self) -> float:
        """The objective of all schedules."""
        return sum(schedule.total_score for schedule in self.schedules.values())

    def place(self, job: int, schedule: JobSchedule) -> None:
        """Put a job's schedule in; it must fit."""
        usage = self._capacity.usage(self._menus[job], schedule)
        self.schedules[job], self._usage[job] = schedule, usage
        self._take(usage, 1.0)
        self.money -= self._spent(job, schedule)

    def remove(self, job: int) -> JobSchedule:
        """Take a job's schedule out."""
        schedule = self.schedules.pop(job)
        self._take(self._usage.pop(job), -1.0)
        self.money += self._spent(job, schedule)
        return schedule

    def replace(self, other: SchedulePacking) -> None:
        """Hold what another packing holds."""
        for job in list(self.schedules):
            self.remove(job)
        for job, schedule in other.schedules.items():
            self.place(job, schedule)

    def fits(self, job: int, schedule: JobSchedule) -> bool:
        """Whether there is room for a schedule of a job that is not in."""
        usage = self._capacity.usage(self._menus[job], schedule)
        if len(usage):
            limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
            room = self.left[limit, slot] + SLIP * self._capacity.most[limit] + SLIP
            if (usage[:, 2] > room).any():
                return False
        most = np.array([budget.most for budget in self._budgets])
        return bool((self._spent(job, schedule) <= self.money + SLIP * most).all())

    def respond(
        self,
        job: int,
        duals: DualValues,
        guide: float,
        rounds: int = 10,
        room: Array | None = None,
    ) -> BestResponse | None:
        """The cheapest schedule in the room that is left, ``guide`` times the duals on top.

        ``room`` (L, T) is what it may take of that, None for all of it.
        """
        menu = self._menus[job]
        if self.schedules or room is not None:
            left = self.left if room is None else room
            menu = menu.narrowed(self._capacity.allowed(menu, left))
        shared = None
        if guide and duals.shared.any():
            prices = self._node_prices(self._parts[job].demand.job.tenant, duals, guide)
            shared = self._capacity.shared_prices(menu, prices, guide * duals.shared)
        usd, kwh = budget_prices(job, duals.budget, self._budgets)
        guess = duals.work[job]
        for turn in range(TRIES):
            found = cheapest_schedule(menu, shared, usd=usd, kwh=kwh, guess=guess, rounds=rounds)
            if len(menu.work) > 1:
                staged = cheapest_staged_schedule(
                    menu, shared, usd=usd, kwh=kwh, stop_at=self._stop_at
                )
                found = cheaper_response(found, staged)
            broken = () if found is None else self._broken_budgets(job, found.schedule)
            if found is None or not broken:
                return found
            for budget in broken:
                scale = MAX_COST_RATIO ** (turn - 1) * _usd_per(budget, found.schedule)
                usd, kwh = (usd, kwh + scale) if budget.in_kwh else (usd + scale, kwh)
        return None

    def remaining_share(self, job: int, share: float) -> Array:
        """(L, T): what the job's tenant has left of its share, as far as it is there."""
        tenant = self._parts[job].demand.job.tenant
        own = share * self._capacity.empty()
        for other, usage in self._usage.items():
            if self._parts[other].demand.job.tenant == tenant and len(usage):
                place = (usage[:, 0].astype(int), usage[:, 1].astype(int))
                np.subtract.at(own, place, usage[:, 2])
        return np.minimum(own, self.left)

    def _node_prices(self, tenant: str, duals: DualValues, guide: float) -> NodeSlotPrices:
        """Kept as long as the duals are the same."""
        if self._priced is not duals:
            self._priced = duals
            self._prices.clear()
        key = (tenant, guide)
        if key not in self._prices:
            self._prices[key] = self._capacity.node_prices(guide * duals.shared, tenant)
        return self._prices[key]

    def conflicting(self, usage: Array) -> list[int]:
        """Jobs that hold something of what ``usage`` needs and does not find."""
        limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
        short = usage[:, 2] > self.left[limit, slot] + SLIP
        return self.holders(set(zip(limit[short].tolist(), slot[short].tolist(), strict=True)))

    def holders(self, wanted: set[tuple[int, int]]) -> list[int]:
        """Jobs that hold something of these (limit, slot)."""
        return [
            job
            for job, held in self._usage.items()
            if any((int(x), int(y)) in wanted for x, y, _ in held.tolist())
        ]

    def _broken_budgets(self, job: int, schedule: JobSchedule) -> list[SharedBudget]:
        spent = self._spent(job, schedule)
        return [
            budget
            for budget, take, left in zip(
                self._budgets, spent.tolist(), self.money.tolist(), strict=True
            )
            if take > left + SLIP * budget.most
        ]

    def _spent(self, job: int, schedule: JobSchedule) -> Array:
        return np.array([budget.spent(job, schedule) for budget in self._budgets])

    def _take(self, usage: Array, sign: float) -> None:
        if len(usage):
            place = (usage[:, 0].astype(int), usage[:, 1].astype(int))
            np.subtract.at(self.left, place, sign * usage[:, 2])


def _usd_per(budget: SharedBudget, schedule: JobSchedule) -> float:
    """What a unit of the budget is worth in this schedule."""
    spent = float((schedule.kwh if budget.in_kwh else schedule.usd).sum())
    return schedule.total_score / max(spent, 1e-12)
