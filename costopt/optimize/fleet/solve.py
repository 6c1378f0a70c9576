"""Plans of many jobs over time, or of one whose prices move: prices first, then schedules.

1. Each job as if it were alone, and all of them packed side by side, without any prices.
2. Column generation: prices of the limits, and a bound that holds for every plan on these slots.
3. Packed again at these prices, then improved until the gap or the time is reached.
4. One job: the cells of the schedules seen so far, solved together as a mixed-integer program.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from costopt.optimize.demand import Demand
from costopt.optimize.fleet.budget import Budget, budgets_of
from costopt.optimize.fleet.capacity import Capacity
from costopt.optimize.fleet.generation import Generation, Relaxation, free_prices
from costopt.optimize.fleet.master import Duals
from costopt.optimize.fleet.menus import Menus
from costopt.optimize.fleet.packing import Packing
from costopt.optimize.fleet.rounding import Rounding
from costopt.optimize.fleet.schedule import Schedule
from costopt.optimize.fleet.warm import Warm
from costopt.optimize.model import JobPart
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import shared_limits
from costopt.optimize.slots import Slot, grid_of
from costopt.optimize.tariff import Outlook

BOUND_GAP = 0.004
"""The relaxation is taken as solved when this near to its bound."""

FIRST_SHARE, BOUND_SHARE = 0.15, 0.5
"""Of the time: until the first packing is left as it is, until the bound is."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """``schedules`` by job, None for those not served; ``bound_usd`` holds on ``slots``."""

    slots: tuple[Slot, ...]
    outlook: Outlook
    schedules: tuple[Schedule | None, ...]
    bound_usd: float
    duals: Duals
    capacity: Capacity
    columns: tuple[tuple[int, Schedule], ...]
    menus: Menus

    @property
    def score(self) -> float:
        """The objective in dollars."""
        return sum(s.total_score for s in self.schedules if s is not None)

    @property
    def gap(self) -> float:
        """How far the plan may be from the best one, in shares of it."""
        return max(0.0, self.score - self.bound_usd) / max(abs(self.score), 1e-9)


def solve_fleet(
    request: PlanRequest,
    parts: Sequence[JobPart],
    *,
    time_limit_s: float,
    gap: float,
    solver: str | None = None,
    warm: Warm | None = None,
) -> FleetPlan:
    """The best plan found within the time, and its bound; jobs that find no room stay without."""
    return _Solve(request, parts, time_limit_s, gap, solver, warm).run()


def fleet_slots(request: PlanRequest, demands: Sequence[Demand]) -> tuple[Slot, ...]:
    """The slots of the request's plan over time."""
    scarce = any(offer.nodes_available is not None for offer in request.offers)
    slot_h = None if request.slot_s is None else request.slot_s / 3600
    return grid_of(demands, request.now, scarce_now=scarce, slot_h=slot_h)


class _Solve:
    def __init__(
        self,
        request: PlanRequest,
        parts: Sequence[JobPart],
        time_limit_s: float,
        gap: float,
        solver: str | None,
        warm: Warm | None,
    ) -> None:
        self._started, self._limit_s = time.perf_counter(), time_limit_s
        self._request, self._parts = request, parts
        self._gap, self._solver, self._warm = gap, solver, warm
        self._slots = fleet_slots(request, [part.demand for part in parts])
        self._capacity = Capacity(request, self._slots, shared_limits(request))
        self._outlook = Outlook.of(request, self._slots)
        self._menus = Menus(request, parts, self._outlook, self._capacity)
        self._budgets: tuple[Budget, ...] = budgets_of(request, parts)

    def run(self) -> FleetPlan:
        """The whole of it."""
        alone, start = free_prices(self._menus, self._capacity, self._budgets)
        able = [job for job, schedule in enumerate(alone) if schedule is not None]
        first = self._packing()
        if not able:
            return self._nothing(start)
        if self._warm is not None:
            start = self._warm.prices(self._parts, self._capacity, start)
            self._warm.place(self._parts, self._menus, first)
        rounding = self._rounding(first, start, self._limit_s * FIRST_SHARE)
        rounding.fill([job for job in rounding.tightest_first() if job in able])
        relaxed = self._relax(alone, first, start)
        best = self._best(relaxed, first, able)
        plan = FleetPlan(
            self._slots,
            self._outlook,
            tuple(best.schedules.get(job) for job in range(len(self._parts))),
            min(relaxed.bound_usd, best.score) if len(best.schedules) == len(self._parts) else 0.0,
            relaxed.duals,
            self._capacity,
            (
                *((column.job, column.schedule) for column in relaxed.columns),
                *best.schedules.items(),
            ),
            self._menus,
        )
        if self._warm is not None:
            self._warm.keep(self._request, self._parts, plan)
        return plan

    def _nothing(self, duals: Duals) -> FleetPlan:
        nobody = (None,) * len(self._parts)
        return FleetPlan(
            self._slots, self._outlook, nobody, 0.0, duals, self._capacity, (), self._menus
        )

    def _relax(self, alone: Sequence[Schedule | None], first: Packing, start: Duals) -> Relaxation:
        """The relaxation of the jobs that can be served at all."""
        generation = Generation(
            self._parts,
            self._menus,
            self._capacity,
            self._budgets,
            gap=min(BOUND_GAP, self._gap) if len(self._parts) == 1 else BOUND_GAP,
            stop_at=self._started + self._limit_s * BOUND_SHARE,
            solver=self._solver,
        )
        known = {job: s for job, s in enumerate(alone) if s is not None}
        return generation.run(known, first.schedules, start)

    def _best(self, relaxed: Relaxation, first: Packing, able: Sequence[int]) -> Packing:
        """The better of the first packing and one at the relaxation's prices, improved."""
        second = self._packing()
        rounding = self._rounding(second, relaxed.duals, self._limit_s)
        rounding.fill([job for job in rounding.tightest_first() if job in able])
        if _worse(second, first):
            rounding = self._rounding(first, relaxed.duals, self._limit_s)
        rounding.improve(relaxed.bound_usd, self._gap)
        return rounding.packing

    def _packing(self) -> Packing:
        return Packing(self._parts, self._menus, self._capacity, self._budgets)

    def _rounding(self, packing: Packing, duals: Duals, limit_s: float) -> Rounding:
        return Rounding(
            self._parts,
            self._menus,
            self._capacity,
            packing,
            duals,
            stop_at=self._started + limit_s,
        )


def _worse(one: Packing, other: Packing) -> bool:
    """Fewer jobs served, or as many for more."""
    return (len(one.schedules), -one.score) < (len(other.schedules), -other.score)
