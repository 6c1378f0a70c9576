"""Plans of many jobs over time, or of one whose prices vary: prices first, then schedules.

1. Each job as if it were alone, and all of them packed side by side, without any prices.
2. Column generation: prices of the limits, and a bound that holds for every plan on these slots.
3. A few jobs: patterns of what they run side by side, a better bound, and schedules made of them.
4. Where that is not near the bound: packed again at the prices of the limits, and the better of all
   improved until the gap or the time limit is reached.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from costopt.optimize.colgen.budget_prices import unconstrained_schedules
from costopt.optimize.colgen.capacity import SharedBudget, SharedCapacity, shared_budgets
from costopt.optimize.colgen.generation import ColumnGeneration, RelaxationResult
from costopt.optimize.colgen.master import DualValues
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.packing import RoundingHeuristic, SchedulePacking
from costopt.optimize.colgen.pattern_order import PatternOrder
from costopt.optimize.colgen.schedule import JobSchedule, trim_excess_work
from costopt.optimize.colgen.slot_patterns import SlotPatterns, schedule_of_rows
from costopt.optimize.colgen.warm_start import FleetPlan, WarmStart
from costopt.optimize.demand import Demand
from costopt.optimize.limits import shared_limits
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable
from costopt.optimize.slots import MAX_CUT_JOBS, Slot, clock_slots

BOUND_GAP = 0.004
"""The relaxation is taken as solved when this near to its bound."""

NEAR_GAP_SHARE = 0.2
"""A plan made again is as near as the last one if its gap exceeds that by at most this share."""

REUSE_GAP_SHARE = 0.3
REPLAN_GAP_SHARE = 0.2
"""Where this share of the last plan's schedules still fits, this share of the time is enough."""

PRICE_REACH, REACHES = 1.5, 2
"""Patterns leave out rows that cost more than their work at this many times its price; how often
they are sought where the price turns out to be higher.
"""

FIRST_SHARE, BOUND_SHARE = 0.15, 0.7
"""Of the time: until the first packing is left as it is, until the bound is."""


def solve_fleet(
    request: PlanRequest,
    parts: Sequence[PlannedJob],
    *,
    time_limit_s: float,
    gap: float,
    solver: str | None = None,
    warm: WarmStart | None = None,
) -> FleetPlan:
    """Return the best plan found in time, and its bound; jobs that do not fit get no schedule.

    The same request gives the same plan, unless the time runs out before the gap is reached.
    """
    return _Solve(request, parts, time_limit_s, gap, solver, warm).run()


def planning_slots(
    request: PlanRequest, demands: Sequence[Demand], cuts_h: Sequence[float] = ()
) -> tuple[Slot, ...]:
    """Return the slots of the request's plan over time; ``cuts_h`` are further ones."""
    scarce = any(offer.nodes_available is not None for offer in request.offers)
    slot_h = None if request.slot_s is None else request.slot_s / 3600
    return clock_slots(demands, request.now, scarce_now=scarce, slot_h=slot_h, cuts_h=cuts_h)


class _Solve:
    def __init__(
        self,
        request: PlanRequest,
        parts: Sequence[PlannedJob],
        time_limit_s: float,
        gap: float,
        solver: str | None,
        warm: WarmStart | None,
        cuts_h: Sequence[float] = (),
    ) -> None:
        self._started, self._limit_s = time.perf_counter(), time_limit_s
        self._request, self._parts = request, parts
        self._gap, self._solver, self._warm = gap, solver, warm
        cuts_h = cuts_h if warm is None else warm.cuts_h(request.now)
        self._slots = planning_slots(request, [part.demand for part in parts], cuts_h)
        self._capacity = SharedCapacity(request, self._slots, shared_limits(request))
        self._outlook = ForecastTable.of(request, self._slots)
        self._menus = Menus(request, parts, self._outlook, self._capacity)
        self._budgets: tuple[SharedBudget, ...] = shared_budgets(request, parts)

    def run(self) -> FleetPlan:
        """Solve; only as far as necessary where the last plan still holds."""
        first = self._packing()
        kept = None if self._warm is None or self._warm.gap is None else self._warm
        if kept is not None:
            kept.place(self._parts, self._menus, first)
        singles = unconstrained_schedules(
            self._menus, self._capacity, self._budgets, first.schedules
        )
        start = singles.duals
        known = {job: s for job, s in enumerate(singles.alone) if s is not None}
        able = list(known)
        if not able:
            return self._nothing(start)
        if kept is not None:
            start = kept.prices(self._parts, self._capacity, start)
        if kept is not None and len(first.schedules) >= REUSE_GAP_SHARE * len(able):
            self._limit_s *= REPLAN_GAP_SHARE
        self._filled(first, start, able, self._limit_s * FIRST_SHARE)
        again = None if kept is None else self._as_near(known, first, start, kept)
        priced_usd = 0.0 if again is None else again.bound_usd
        if again is None:
            relaxed = self._generation().run(known, first.schedules, start, singles.others)
            priced_usd = relaxed.bound_usd
            relaxed, again = self._of_patterns(relaxed, able)
            if again is None or self._budgets or not _worse(first, again):
                best = self._best(relaxed, first, able)
                again = again if again and _worse(best, again) else self._plan(best, relaxed)
        if self._warm is not None:
            self._warm.keep(self._request, self._parts, again, priced_usd)
        return again

    def _filled(
        self, packing: SchedulePacking, duals: DualValues, able: Sequence[int], limit_s: float
    ) -> RoundingHeuristic:
        """Every job in, the tightest first; where there is no room for all, tenants share it."""
        rounding = self._rounding(packing, duals, limit_s)
        order = [job for job in rounding.order_by_tightness() if job in set(able)]
        if not rounding.fill(order) or len(order) == 1:
            return rounding
        even = self._packing()
        homeless = self._rounding(even, duals, limit_s).fill_evenly(order)
        if len(even.schedules) > len(packing.schedules):
            packing.replace(even)
        shares = fair_shares(self._request, [self._parts[job] for job in able])
        if homeless and len(shares) > 1:
            fair = self._packing()
            self._rounding(fair, duals, limit_s).fill_fairly(order, shares)
            packing.replace(fair)
        return rounding

    def _as_near(
        self,
        known: Mapping[int, JobSchedule],
        first: SchedulePacking,
        start: DualValues,
        kept: WarmStart,
    ) -> FleetPlan | None:
        """The last plan's schedules, where they come as near to their bound as they did then."""
        bound_usd = self._generation().bound(known, start)
        near = (kept.gap or 0.0) * (1 + NEAR_GAP_SHARE) + NEAR_GAP_SHARE * self._gap
        if len(first.schedules) < len(known):
            return None
        if first.score - bound_usd > near * max(abs(first.score), 1e-9):
            return None
        relaxed = RelaxationResult(bound_usd, start, ())
        of_patterns = kept.plan is not None and kept.plan.of_patterns
        return replace(self._plan(first, relaxed), of_patterns=of_patterns)

    def _plan(self, packing: SchedulePacking, relaxed: RelaxationResult) -> FleetPlan:
        complete = len(packing.schedules) == len(self._parts)
        return FleetPlan(
            self._slots,
            self._outlook,
            tuple(packing.schedules.get(job) for job in range(len(self._parts))),
            min(relaxed.bound_usd, packing.score) if complete else 0.0,
            relaxed.duals,
            self._capacity,
            (
                *((column.job, column.schedule) for column in relaxed.columns),
                *packing.schedules.items(),
            ),
            self._menus,
            relaxed.build_s,
        )

    def _nothing(self, duals: DualValues) -> FleetPlan:
        nobody = (None,) * len(self._parts)
        return FleetPlan(
            self._slots, self._outlook, nobody, 0.0, duals, self._capacity, (), self._menus
        )

    def _generation(self) -> ColumnGeneration:
        return ColumnGeneration(
            self._parts,
            self._menus,
            self._capacity,
            self._budgets,
            gap=min(BOUND_GAP, self._gap) if len(self._parts) == 1 else BOUND_GAP,
            stop_at=self._started + self._limit_s * BOUND_SHARE,
            solver=self._solver,
        )

    def _of_patterns(
        self, relaxed: RelaxationResult, able: Sequence[int]
    ) -> tuple[RelaxationResult, FleetPlan | None]:
        """The bound, which patterns may prove to be higher, and the plan that is made of them."""
        stop_at = self._started + self._limit_s * BOUND_SHARE
        menus = [self._menus[job] for job in able]
        prices = np.hstack(relaxed.duals.work)
        few = 1 < len(able) == len(self._parts) <= MAX_CUT_JOBS and bool((prices > 0).all())
        if not few or not SlotPatterns(self._capacity, menus).usable:
            return relaxed, None
        work = np.array([menu.work[0] for menu in menus])
        for _ in range(REACHES):
            reach = PRICE_REACH * prices
            menus = [self._menus.keep_all(job, reach[[job]], None) for job in able]
            patterns = SlotPatterns(self._capacity, menus)
            if not patterns.usable:
                return relaxed, None
            prices = patterns.solve(prices * work, stop_at, self._solver) / work
            if self._menus.whole or (prices <= reach).all():
                break
        proved = prices if self._menus.whole else np.minimum(prices, reach)
        bound_usd = patterns.bound(proved * work)
        timed = self._timed(patterns, replace(relaxed, bound_usd=bound_usd, columns=()), stop_at)
        return replace(relaxed, bound_usd=max(relaxed.bound_usd, bound_usd)), timed

    def _timed(
        self, patterns: SlotPatterns, relaxed: RelaxationResult, stop_at: float
    ) -> FleetPlan | None:
        """The plan of all jobs in the best order of patterns, on slots cut where these begin."""
        blocks = PatternOrder(patterns, stop_at).best()
        begins = [begin_h for begin_h, _ in blocks]
        fine = _Solve(
            self._request, self._parts, self._limit_s, self._gap, self._solver, None, begins
        )
        middles = [(slot.start_h + slot.end_h) / 2 for slot in fine._slots]
        now = np.searchsorted(begins, middles, side="right") - 1
        packing = fine._packing()
        for job, menu in enumerate(patterns.menus):
            place = np.array([rows[job] for _, rows in blocks])[now]
            runs = np.flatnonzero(place >= 0)
            rows = menu.rows[place[runs]]
            fine._menus.extend(job, np.unique(rows))
            own = fine._menus[job]
            schedule = trim_excess_work(own, schedule_of_rows(own, runs, own.positions(rows)))
            if not schedule.serves(own.work) or not packing.fits(job, schedule):
                return None
            packing.place(job, schedule)
        edges, cuts = (
            [one._slots[0].start_h, *(slot.end_h for slot in one._slots)] for one in (self, fine)
        )
        paid = [np.interp(cuts, edges, [0, *row.cumsum()]) for row in relaxed.duals.shared]
        shared = np.diff(np.reshape(paid, (-1, len(cuts))), axis=1)
        duals = replace(relaxed.duals, shared=shared)
        return replace(fine._plan(packing, replace(relaxed, duals=duals)), of_patterns=True)

    def _best(
        self, relaxed: RelaxationResult, first: SchedulePacking, able: Sequence[int]
    ) -> SchedulePacking:
        """The better of the first packing and one at the relaxation's prices, improved."""
        if time.perf_counter() > self._started + self._limit_s and len(first.schedules) == len(
            able
        ):
            return first
        second = self._packing()
        rounding = self._filled(second, relaxed.duals, able, self._limit_s)
        if _worse(second, first):
            rounding = self._rounding(first, relaxed.duals, self._limit_s)
        rounding.improve(relaxed.bound_usd, self._gap)
        return rounding.packing

    def _packing(self) -> SchedulePacking:
        stop_at = self._started + self._limit_s
        return SchedulePacking(self._parts, self._menus, self._capacity, self._budgets, stop_at)

    def _rounding(
        self, packing: SchedulePacking, duals: DualValues, limit_s: float
    ) -> RoundingHeuristic:
        return RoundingHeuristic(
            self._parts,
            self._menus,
            self._capacity,
            packing,
            duals,
            stop_at=self._started + limit_s,
        )


def fair_shares(request: PlanRequest, parts: Sequence[PlannedJob]) -> dict[str, float]:
    """Return each tenant's share of every limit, by its weight.

    The share is its weight over those of all tenants that have work to do.
    """
    names = sorted({part.demand.job.tenant for part in parts})
    weights = {
        name: request.tenants[name].weight if name in request.tenants else 1.0 for name in names
    }
    total = sum(weights.values())
    return {name: weight / total if total > 0 else 1.0 for name, weight in weights.items()}


def _worse(one: SchedulePacking, other: SchedulePacking | FleetPlan) -> bool:
    """Fewer jobs served, or as many for more."""
    return (len(one.schedules), -one.score) < (len(other.schedules), -other.score)
