"""Primal heuristics: from prices to schedules that respect every limit that jobs share.

Jobs are placed one after the other, then improved. A job that does not fit is made to fit: jobs
that hold what it needs are taken out, it is inserted, and they are inserted again where there is
capacity. Improving takes a job, or a few that hold the same limits, out and inserts them again, at
the prices of the relaxation or at none; the cheaper total is retained.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import numpy as np

from costopt.domain.policy import Objective
from costopt.optimize.colgen.best_response import (
    BestResponse,
    cheaper_response,
    cheapest_schedule,
    cheapest_staged_schedule,
)
from costopt.optimize.colgen.budget_prices import budget_charge
from costopt.optimize.colgen.capacity import NodeSlotPrices, SharedBudget, SharedCapacity
from costopt.optimize.colgen.master import DualValues
from costopt.optimize.colgen.menu import NO_CHARGE
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array

MAX_COST_RATIO = 4.0
TRIES = 6
"""How often, and by which factor, a budget's price is raised until a schedule keeps it."""

HALVINGS = 5
"""How often the last two prices are then halved between."""

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
        """Return the time at which the plan is made."""
        return self._capacity.request.now

    @property
    def score(self) -> float:
        """Return the objective of all schedules in dollars."""
        return sum(schedule.total_score for schedule in self.schedules.values())

    def place(self, job: int, schedule: JobSchedule) -> None:
        """Add a job's schedule, which must fit."""
        usage = self._capacity.usage(self._menus[job], schedule)
        self.schedules[job], self._usage[job] = schedule, usage
        self._take(usage, 1.0)
        self.money -= self._spent(job, schedule)

    def remove(self, job: int) -> JobSchedule:
        """Remove a job's schedule and return it."""
        schedule = self.schedules.pop(job)
        self._take(self._usage.pop(job), -1.0)
        self.money += self._spent(job, schedule)
        return schedule

    def replace(self, other: SchedulePacking) -> None:
        """Replace the schedules with those of another packing."""
        for job in list(self.schedules):
            self.remove(job)
        for job, schedule in other.schedules.items():
            self.place(job, schedule)

    def fits(self, job: int, schedule: JobSchedule) -> bool:
        """Return whether the schedule of a job that is not placed fits."""
        usage = self._capacity.usage(self._menus[job], schedule)
        if len(usage):
            limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
            room = self.left[limit, slot] + SLIP * self._capacity.most[limit] + SLIP
            if (usage[:, 2] > room).any():
                return False
        most = np.array([budget.most for budget in self._budgets])
        return bool((self._spent(job, schedule) <= self.money + SLIP * most).all())

    def respond(
        self, job: int, duals: DualValues, guide: float, rounds: int = 10, room: Array | None = None
    ) -> BestResponse | None:
        """Return the cheapest schedule in the remaining room, ``guide`` times the duals on top.

        ``room`` (L, T) is the part of it that the job may use, None for all of it.
        """
        menu = self._menus[job]
        if self.schedules or room is not None:
            left = self.left if room is None else room
            menu = menu.narrowed(self._capacity.allowed(menu, left))
        shared = None
        if guide and duals.shared.any():
            prices = self._node_prices(self._parts[job].demand.job.tenant, duals, guide)
            shared = self._capacity.shared_prices(menu, prices, guide * duals.shared)
        charge = below = budget_charge(job, duals.budget, self._budgets)

        def at(prices: Objective) -> BestResponse | None:
            charged, guess = menu.charged(prices), duals.work[job]
            found = cheapest_schedule(charged, shared, guess=guess, rounds=rounds)
            if len(menu.work) == 1:
                return found
            staged = cheapest_staged_schedule(charged, shared, stop_at=self._stop_at)
            return cheaper_response(found, staged)

        for turn in range(TRIES):
            found = at(charge)
            if found is None:
                return None
            broken = self._broken_budgets(job, found.schedule)
            if not broken:
                return found if not turn else self._cheapest_within(job, at, below, charge, found)
            below = charge
            for budget in broken:
                scale = MAX_COST_RATIO ** (turn - 1) * _usd_per(budget, found.schedule)
                charge = charge.plus(budget.weights, scale)
        return None

    def _cheapest_within(
        self,
        job: int,
        at: Callable[[Objective], BestResponse | None],
        below: Objective,
        above: Objective,
        kept: BestResponse,
    ) -> BestResponse:
        """The cheapest schedule that keeps the budgets at prices between those that break them,
        and those of ``kept``.
        """
        for _ in range(HALVINGS):
            middle = NO_CHARGE.plus(below, 0.5).plus(above, 0.5)
            found = at(middle)
            if found is None or self._broken_budgets(job, found.schedule):
                below = middle
                continue
            above = middle
            if found.schedule.total_score < kept.schedule.total_score:
                kept = found
        return kept

    def remaining_share(self, job: int, share: float) -> Array:
        """Return the unused part of the tenant's share, shape (L, T): limit × slot.

        It is counted as far as it is available.
        """
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
        """Return the jobs that hold capacity which ``usage`` needs and lacks."""
        limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
        short = usage[:, 2] > self.left[limit, slot] + SLIP
        return self.holders(set(zip(limit[short].tolist(), slot[short].tolist(), strict=True)))

    def holders(self, wanted: set[tuple[int, int]]) -> list[int]:
        """Return the jobs that hold something of these (limit, slot)."""
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
    return schedule.total_score / max(float(schedule.scored_by(budget.weights).sum()), 1e-12)


SEED = 20260302
GUIDE_WEIGHTS = (1.0, 0.6, 0.3, 0.0)
"""Shares of the relaxation's prices that jobs are charged, from all to none."""

RUIN = 4
"""The most jobs that are taken out together."""

TRIES_PER_JOB = 15
"""Exchanges without a gain, for each job, after which the packing is taken as it is."""

BETTER = 1e-9


class RoundingHeuristic:
    """The improvement of one packing until the time is up or the gap is small enough."""

    def __init__(
        self,
        parts: Sequence[PlannedJob],
        menus: Menus,
        capacity: SharedCapacity,
        packing: SchedulePacking,
        duals: DualValues,
        *,
        stop_at: float,
    ) -> None:
        self._parts, self._menus, self._capacity = parts, menus, capacity
        self.packing, self._duals, self._stop_at = packing, duals, stop_at
        self._random = random.Random(SEED)  # noqa: S311 it only orders what is tried

    def fill(self, order: Sequence[int]) -> list[int]:
        """Place every job that is not placed yet; return those that do not fit."""
        waiting = [job for job in order if job not in self.packing.schedules]
        homeless: list[int] = []
        for job in waiting:
            found = self.packing.respond(job, self._duals, 1.0)
            if found is None:
                homeless.append(job)
            else:
                self.packing.place(job, found.schedule)
        return [job for job in homeless if not self._make_room(job)]

    def fill_evenly(self, order: Sequence[int]) -> list[int]:
        """Place jobs like ``fill``, but each takes at most an even part of the remainder.

        The part is even among the job and those after it, so that the last is not crowded out by a
        first one that took many slow nodes as the cheapest.
        """
        waiting = [job for job in order if job not in self.packing.schedules]
        for number, job in enumerate(waiting):
            room = self.packing.left / (len(waiting) - number)
            found = self.packing.respond(job, self._duals, 1.0, room=room)
            if found is not None:
                self.packing.place(job, found.schedule)
        return self.fill(order)

    def fill_fairly(self, order: Sequence[int], shares: Mapping[str, float]) -> list[int]:
        """Place jobs like ``fill``, but first within their tenant's share of every limit."""
        for job in order:
            if job not in self.packing.schedules:
                share = shares[self._parts[job].demand.job.tenant]
                room = self.packing.remaining_share(job, share)
                found = self.packing.respond(job, self._duals, 1.0, room=room)
                if found is not None:
                    self.packing.place(job, found.schedule)
        return self.fill(order)

    def order_by_tightness(self) -> list[int]:
        """Return the jobs by how much of their time they need at their fastest, descending."""
        return sorted(range(len(self._parts)), key=lambda job: -_tightness(self._parts[job]))

    def improve(self, bound_usd: float, gap: float) -> None:
        """Make the packing cheaper until it is within the gap of the bound, or the time is up.

        A job alone is at its best already where nothing that it shares has a price.
        """
        if len(self._parts) == 1 and not self._duals.shared.any():
            return
        guide, since = 0, 0
        jobs = list(range(len(self._parts)))
        while time.perf_counter() < self._stop_at and not self._close(bound_usd, gap):
            if guide < len(GUIDE_WEIGHTS):
                gained = self._sweep(jobs, GUIDE_WEIGHTS[guide])
                guide += 0 if gained else 1
                continue
            since = 0 if self._ruin_and_recreate(jobs) else since + 1
            if len(jobs) == 1 or since > TRIES_PER_JOB * len(jobs):
                return

    def _close(self, bound_usd: float, gap: float) -> bool:
        return self.packing.score - bound_usd <= gap * max(abs(self.packing.score), 1e-9)

    def _sweep(self, jobs: list[int], guide: float) -> bool:
        """Move each job in turn to its best place; return whether the score improved."""
        before = self.packing.score
        self._random.shuffle(jobs)
        for job in jobs:
            if time.perf_counter() > self._stop_at:
                break
            if job in self.packing.schedules:
                self._replace([job], guide)
        return self.packing.score < before * (1 - 1e-4)

    def _ruin_and_recreate(self, jobs: Sequence[int]) -> bool:
        served = [job for job in jobs if job in self.packing.schedules]
        if not served:
            return False
        seed = self._random.choice(served)
        usage = self._capacity.usage(self._menus[seed], self.packing.schedules[seed])
        rivals = [job for job in self._rivals(usage) if job != seed]
        count = min(self._random.randint(1, RUIN - 1), len(rivals))
        group = [seed, *self._random.sample(rivals, count)]
        self._random.shuffle(group)
        return self._replace(group, self._random.choice(GUIDE_WEIGHTS))

    def _rivals(self, usage: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[int]:
        """Jobs that hold one of the limits that this usage holds while it is nearly used up."""
        if not len(usage):
            return []
        limit, slot = usage[:, 0].astype(int), usage[:, 1].astype(int)
        tight = self.packing.left[limit, slot] < 0.25 * self._capacity.most[limit]
        return self.packing.holders(
            set(zip(limit[tight].tolist(), slot[tight].tolist(), strict=True))
        )

    def _replace(self, group: Sequence[int], guide: float) -> bool:
        """Take jobs out and put them in again; back as they were where that is not cheaper."""
        packing = self.packing
        old = {job: packing.remove(job) for job in group}
        before = sum(schedule.total_score for schedule in old.values())
        new: dict[int, JobSchedule] = {}
        spent = 0.0
        for job in group:
            found = packing.respond(job, self._duals, guide, rounds=7)
            if found is None:
                break
            packing.place(job, found.schedule)
            new[job] = found.schedule
            spent += found.schedule.total_score
            if spent >= before:
                break
        if len(new) == len(group) and spent < before * (1 - BETTER):
            return True
        for job in new:
            packing.remove(job)
        for job, schedule in old.items():
            packing.place(job, schedule)
        return False

    def _make_room(self, job: int) -> bool:
        """Take out who is in the way of a job's best schedule, and put them in after it."""
        packing = self.packing
        alone = cheapest_schedule(self._menus[job], guess=self._duals.work[job])
        if alone is None:
            return False
        usage = self._capacity.usage(self._menus[job], alone.schedule)
        for turn in range(3):
            if time.perf_counter() > self._stop_at:
                return False
            rivals = packing.conflicting(usage)
            self._random.shuffle(rivals)
            old = {rival: packing.remove(rival) for rival in rivals}
            if self._settle(job, rivals, guide=1.0 if turn % 2 == 0 else 0.3):
                return True
            for rival in [job, *rivals]:
                if rival in packing.schedules:
                    packing.remove(rival)
            for rival, schedule in old.items():
                packing.place(rival, schedule)
        return False

    def _settle(self, job: int, rivals: Sequence[int], guide: float) -> bool:
        for one in [job, *sorted(rivals, key=lambda r: -_tightness(self._parts[r]))]:
            found = self.packing.respond(one, self._duals, guide)
            if found is None:
                return False
            self.packing.place(one, found.schedule)
        return True


def _tightness(part: PlannedJob) -> float:
    """The share of its time that a job needs at its fastest; 1 leaves no choice."""
    table, demand = part.table, part.demand
    if not len(table) or demand.hours_left <= 0:
        return float("inf")
    fastest = float((table.paid_units_per_hour / table.stretch).max())
    return demand.units / max(fastest * demand.hours_left, 1e-300)
