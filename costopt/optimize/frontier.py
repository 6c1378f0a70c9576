"""Pareto frontiers and what-if: the sweeps that generate the plans from which a frontier is chosen.

The scenarios of a what-if are plans under other policies, deadlines and markets; its frontier is
dollars against kWh and finish time.

The plans of a frontier come from sweeps of the due time and of limits on kWh. Due times lie evenly
from the latest back to the earliest that any plan can meet. At each of them the dollars are
minimized under evenly spaced limits of kWh from the cheapest plan's to the most frugal one's (the
ε-constraint method: Haimes, Lasdon and Wismer 1971), which unlike a sweep of weights also finds
plans off the convex hull.

Where uninterruptible capacity is allowed, plans that fall back on it in the worst case are swept
first, and those that reserve the time for the worst case more coarsely. The cheapest plans of one
configuration are among them, so that a frontier does not begin at a higher cost than the best of
these.

Where the power of a configuration is unknown no limit on kWh means anything: at each due time there
is then one plan, the one of minimum dollars. Where prices vary, weights of kWh take the place of
the limits (``TimeVaryingSweep``): each plan is the cheapest path over slots at a weight
(``colgen.best_response``), on slots and forecasts that all of them share; no bound is computed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costopt.domain.errors import InfeasibleError, SolverError
from costopt.domain.policy import Objective
from costopt.optimize.chance_constraint import over_budget
from costopt.optimize.colgen.best_response import (
    cheaper_response,
    cheapest_schedule,
    cheapest_staged_schedule,
)
from costopt.optimize.colgen.capacity import SharedCapacity
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.fallback import choose_fallback_row
from costopt.optimize.limits import shared_limits
from costopt.optimize.pareto import (
    FrontierPoint,
    non_dominated,
    part_with_objective,
    restrict_offers,
    restrict_rows,
    select_spread,
    with_objective,
)
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import prepare
from costopt.optimize.pruning import StageConfiguration, single_held_h, stage_configurations
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment, allocations_of, segments_of, verify
from costopt.optimize.simulation import forecast_segments, with_time_margin
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.solve import (
    SolveResult,
    SolverSettings,
    single_configuration_plans,
    solve_jobs,
)

__all__ = ["FrontierPoint", "frontier"]


def frontier(
    request: PlanRequest, *, points: int = 24, time_limit_s: float = 10.0
) -> tuple[FrontierPoint, ...]:
    """Return the non-dominated plans of one job in dollars, kWh and finish time.

    They are sorted by ascending dollars and at most ``points``; the result is empty where there is
    no plan. There are fewer where the figures agree. The errors are those of ``plan``.
    """
    _one_job(request)
    parts, _ = prepare(request)
    if points < 1 or not parts or not len(parts[0].table) or parts[0].demand.hours_left <= 0:
        return ()
    swept = _by_power(parts[0])
    found = [
        point
        for part in swept
        for point in FrontierSweep(request, part, points, time_limit_s / len(swept)).points()
    ]
    return select_spread(non_dominated(found), points)


def _by_power(part: PlannedJob) -> tuple[PlannedJob, ...]:
    """The part on the configurations of known power, and the whole where there are others."""
    powered = np.isfinite(part.table.power_error)
    if powered.all():
        return (part,)
    return (replace(part, table=part.table.take(powered)), part) if powered.any() else (part,)


def _one_job(request: PlanRequest) -> None:
    if len(request.jobs) != 1:
        raise InfeasibleError(
            f"a what-if needs one job, this request has {len(request.jobs)}",
            hint="ask for one job at a time",
            code="many_jobs",
        )


SECOND_AIM = 1e-4
"""The weight of the other figure at an end of a sweep: it decides between equals only."""

MIN_COST = Objective(usd=1.0, usd_per_kwh=SECOND_AIM)
MIN_ENERGY = Objective(usd=SECOND_AIM, usd_per_kwh=1.0)

DUE_TIMES = 5
"""Due times that are swept, the latest included."""

MOVING_DUES, MOVING_WEIGHTS = 8, 8
"""Due times and weights of kWh where prices move; half of each for coarse sweeps."""

Segments = tuple[Segment, ...]


class FrontierSweep:
    """The plans of one job; about ``points`` of them in the finest sweep."""

    def __init__(
        self, request: PlanRequest, part: PlannedJob, points: int, time_limit_s: float
    ) -> None:
        self._request, self._part, self._points = restrict_offers(request, [part]), part, points
        self._stop_at = time.perf_counter() + time_limit_s
        self._limit_s = max(0.05, time_limit_s / max(points, 1))
        self._asked = request.policy.risk.on_time
        self._moves = needs_slots(request, part)
        powered = bool(np.isfinite(part.table.power_error).all())
        self._ends = (MIN_COST, MIN_ENERGY) if powered else (Objective(),)

    def points(self) -> list[FrontierPoint]:
        """Return the plans found in time, as simulated; some may be dominated by others.

        All are as sure as the policy asks, and none is expected to exceed the job's budgets.
        """
        found: list[FrontierPoint] = []
        for share, fine in self._margins():
            table = self._part.table if share == 1 else with_time_margin(self._part.table, share)
            for segments in self._swept(replace(self._part, table=table), fine):
                point = self._point(segments)
                sure = point.forecast.on_time.is_at_least(self._asked)
                if sure and not any(self._over_budget(point)):
                    found.append(point)
        return found

    def _margins(self) -> tuple[tuple[float, int], ...]:
        """(share of the margin held back, limits of kWh at the latest due time)."""
        fine, coarse = max(2, self._points * 2 // 3), max(2, self._points // 8)
        if choose_fallback_row(self._part.table, self._part.demand) is None:
            return ((1.0, fine),)
        return ((0.0, fine), (1.0, coarse))

    def _swept(self, part: PlannedJob, fine: int) -> Iterator[Segments]:
        coarse = fine <= self._points // 8
        if self._moves:
            halves = 2 if coarse else 1
            sweep = TimeVaryingSweep(self._request, part, self._stop_at)
            weights = MOVING_WEIGHTS // halves if len(self._ends) > 1 else 1
            yield from sweep.plans(self._dues(part, MOVING_DUES // halves), weights)
            return
        yield from single_configuration_plans(
            self._request, part_with_objective(part, self._ends[0]), np.inf
        )
        dues = self._dues(part, 2 if coarse else DUE_TIMES)
        rows = _rows_worth([_due(part, due_h) for due_h in dues], self._ends)
        least = replace(part, table=restrict_rows(part.table, rows))
        request = restrict_offers(self._request, [least])
        for number, due_h in enumerate(dues):
            if time.perf_counter() > self._stop_at:
                return
            levels = fine if number == 0 else max(2, fine // 3)
            for segments in self._at(request, _due(least, due_h), levels):
                yield tuple(replace(each, row=int(rows[each.row])) for each in segments)

    def _at(self, request: PlanRequest, part: PlannedJob, levels: int) -> Iterator[Segments]:
        """The cheapest plan, the most frugal one and those between, where energy is known."""
        answers = [self._solve(request, part, end) for end in self._ends]
        if len(answers) > 1 and all(answer.solved for answer in answers):
            most, least = (_kwh(answer) for answer in answers)
            if most > least * (1 + 1e-6):
                limits_kwh = np.linspace(most, least, levels)[1:-1].tolist()
                limited = (_within_kwh(part, limit) for limit in limits_kwh)
                answers.extend(self._solve(request, one, MIN_COST) for one in limited)
        yield from (answer.segments[0] for answer in answers if answer.solved)

    def _dues(self, part: PlannedJob, count: int) -> list[float]:
        """Due times from the latest to the earliest that the fastest configuration can meet."""
        demand = part.demand
        held_h = single_held_h(part.table, demand)
        fastest_h = float(held_h[np.isfinite(held_h)].min(initial=np.inf))
        earliest_h = demand.release_h + fastest_h * (1 + 1e-6)
        if earliest_h >= demand.due_h:
            return [demand.due_h]
        dues: list[float] = np.linspace(demand.due_h, earliest_h, count).tolist()
        return dues

    def _solve(self, request: PlanRequest, part: PlannedJob, objective: Objective) -> SolveResult:
        aim = with_objective(request, objective)
        return solve_jobs(
            aim, [part_with_objective(part, objective)], SolverSettings(self._limit_s, 1e-4)
        )

    def _over_budget(self, point: FrontierPoint) -> tuple[float, float]:
        return over_budget(self._request, self._part.demand.job, point.forecast)

    def _point(self, segments: Segments) -> FrontierPoint:
        part, now = self._part, self._request.now
        forecast, samples = forecast_segments(part.table, segments, part.demand, now)
        allocations = allocations_of(part, segments, now)
        return FrontierPoint(float(samples.usd.mean()), forecast.kwh, forecast, allocations)


def _rows_worth(parts: Sequence[PlannedJob], ends: Sequence[Objective]) -> NDArray[np.int64]:
    """The rows of the table that any plan of the sweep may use."""
    kept = {
        option.row
        for part in parts
        for objective in ends
        for option in _options(_within_kwh(part_with_objective(part, objective), np.inf))
    }
    return np.array(sorted(kept), dtype=np.int64)


def _options(part: PlannedJob) -> list[StageConfiguration]:
    return stage_configurations(part.table, part.demand)


def _due(part: PlannedJob, due_h: float) -> PlannedJob:
    return replace(part, demand=replace(part.demand, due_h=due_h))


def _within_kwh(part: PlannedJob, max_kwh: float) -> PlannedJob:
    job = part.demand.job
    own = job.budget.max_kwh
    budget = replace(job.budget, max_kwh=max_kwh if own is None else min(own, max_kwh))
    return replace(part, demand=replace(part.demand, job=replace(job, budget=budget)))


def _kwh(answer: SolveResult) -> float:
    return sum(segment.kwh for segment in answer.segments[0])


MIN_WEIGHT, MAX_WEIGHT = 0.02, 50.0
"""Weights between the ends: a kWh counts from so little to so much of what one costs on average."""


def needs_slots(request: PlanRequest, part: PlannedJob) -> bool:
    """Return whether the job has to be planned over slots because prices change."""
    pools = {offer.pool for offer in part.table.offers}
    return not pools.isdisjoint(request.price_forecasts)


class TimeVaryingSweep:
    """A sweep for plans of ``part`` until ``stop_at``, a time of the performance counter."""

    def __init__(self, request: PlanRequest, part: PlannedJob, stop_at: float) -> None:
        self._request, self._part, self._stop_at = request, part, stop_at
        slots = planning_slots(request, [part.demand])
        self._capacity = SharedCapacity(request, slots, shared_limits(request))
        self._outlook = ForecastTable.of(request, slots)
        self._tariff = SlotCosts.of(self._outlook, part.table, Objective())

    def plans(self, dues_h: Sequence[float], weights: int) -> Iterator[Segments]:
        """Yield the cheapest plan for each due time and weight within all the job's limits."""
        mean_usd: float | None = None
        for due_h in dues_h:
            for weight in (0.0, *np.geomspace(MIN_WEIGHT, MAX_WEIGHT, weights - 1).tolist()):
                if time.perf_counter() > self._stop_at:
                    return
                found = self._cheapest(due_h, Objective(usd_per_kwh=weight * (mean_usd or 0.0)))
                if found is None:
                    continue
                if mean_usd is None:
                    mean_usd = sum(s.usd for s in found) / max(sum(s.kwh for s in found), 1e-9)
                yield found

    def _cheapest(self, due_h: float, objective: Objective) -> Segments | None:
        demand = replace(self._part.demand, due_h=due_h)
        part = part_with_objective(replace(self._part, demand=demand), objective)
        request = with_objective(self._request, objective)
        menu = Menus(request, [part], self._outlook, self._capacity)[0]
        response = cheapest_schedule(menu)
        if len(menu.work) > 1:
            response = cheaper_response(response, cheapest_staged_schedule(menu))
        if response is None:
            return None
        segments = segments_of(part, self._tariff, response.schedule, self._outlook.slots)
        try:
            verify(part, segments)
        except SolverError:
            return None
        return segments
