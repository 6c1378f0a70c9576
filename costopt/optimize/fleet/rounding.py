"""From prices to schedules that keep every limit: jobs one after the other, then improved.

A job that finds no room makes some: jobs that hold what it needs are taken out, it goes in, and
they come back where there is room. Improving takes a job, or a few that hold the same limits, out
and puts them in again, at the prices of the relaxation or at none; what is cheaper in sum stays.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

import numpy as np

from costopt.optimize.fleet.capacity import SharedCapacity
from costopt.optimize.fleet.master import DualValues
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.packing import SchedulePacking
from costopt.optimize.fleet.response import cheapest_schedule
from costopt.optimize.fleet.schedule import JobSchedule
from costopt.optimize.job_part import PlannedJob

SEED = 20260302
GUIDE_WEIGHTS = (1.0, 0.6, 0.3, 0.0)
"""Shares of the relaxation's prices that jobs are made to heed, from all to none."""

RUIN = 4
"""The most jobs that are taken out together."""

BETTER = 1e-9


class RoundingHeuristic:
    """Works on one packing until the time is up or the gap is small enough."""

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
        """Put in every job that is not in yet; returns those that find no room."""
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
        """As ``fill``, but each takes at most an even part of what is left for it and the rest.

        The last is then not crowded out by a first one that took many slow nodes as the cheapest.
        """
        waiting = [job for job in order if job not in self.packing.schedules]
        for number, job in enumerate(waiting):
            room = self.packing.left / (len(waiting) - number)
            found = self.packing.respond(job, self._duals, 1.0, room=room)
            if found is not None:
                self.packing.place(job, found.schedule)
        return self.fill(order)

    def fill_fairly(self, order: Sequence[int], shares: Mapping[str, float]) -> list[int]:
        """As ``fill``, but each tenant's jobs first find room within its share of every limit."""
        for job in order:
            if job not in self.packing.schedules:
                share = shares[self._parts[job].demand.job.tenant]
                room = self.packing.remaining_share(job, share)
                found = self.packing.respond(job, self._duals, 1.0, room=room)
                if found is not None:
                    self.packing.place(job, found.schedule)
        return self.fill(order)

    def order_by_tightness(self) -> list[int]:
        """Jobs by how much of their time they need at their fastest, the most first."""
        return sorted(range(len(self._parts)), key=lambda job: -_tightness(self._parts[job]))

    def improve(self, bound_usd: float, gap: float) -> None:
        """Make it cheaper until it is within the gap of the bound, or the time is up."""
        guide, since = 0, 0
        jobs = list(range(len(self._parts)))
        while time.perf_counter() < self._stop_at and not self._close(bound_usd, gap):
            if guide < len(GUIDE_WEIGHTS):
                gained = self._sweep(jobs, GUIDE_WEIGHTS[guide])
                guide += 0 if gained else 1
                continue
            since = 0 if self._ruin_and_recreate(jobs) else since + 1
            if len(jobs) == 1 or since > 60 * len(jobs):
                return

    def _close(self, bound_usd: float, gap: float) -> bool:
        return self.packing.score - bound_usd <= gap * max(abs(self.packing.score), 1e-9)

    def _sweep(self, jobs: list[int], guide: float) -> bool:
        """Every job by itself to its best place; whether it paid."""
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
