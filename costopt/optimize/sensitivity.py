"""Sensitivity of a plan: binding constraints, shadow prices and entering prices.

``binding_constraints`` returns for every limit its slack and the dollars that a unit more of it
would save. Shadow prices of what jobs share come from the dual values of the relaxation
(``colgen.master``): with one unit more over the whole plan its bound falls by the sum of the
limit's prices over the slots, so that no plan of these gangs saves more. Where a job was planned
alone, deadline and budgets are increased a little and the job is planned again: a finite
difference.

``EnteringPrice`` finds the node price at which a pool that was not chosen would enter the plan. A
plan that uses the pool's configuration q for x hours costs A·p + B, where p is its node price and
A = w_usd · nodes · (x + paid_start_h). It is as good as the plan that was made at
p = p0 + (plan − cost at p0) / A. Examined are q alone, where that ends in time, and q with one
other configuration j so that both the work and the time are used up:
    units_q·x_q + units_j·x_j = W,   stretch_q·x_q + stretch_j·x_j = L − δ_q − δ_j
At constant prices the cheapest plan of one stage without budgets is of one of these two kinds (a
linear program of two rows has two basic variables), so that the highest such p is where the reduced
cost of the pool, its starts included, is 0. With several stages, budgets, dated capacity or prices
that vary only q alone is examined: below that price the pool certainly enters. All other prices
stay; forecasts of the pool's price move with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.plan import Constraint, LimitUse
from costopt.domain.policy import BUDGET_LIMITS, Objective
from costopt.optimize.colgen.capacity import SharedBudget, shared_budgets
from costopt.optimize.colgen.warm_start import FleetPlan
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.limits import SharedLimit, TotalLimit, shared_limits, total_limits
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import (
    can_run_stage,
    single_held_h,
    single_score,
    single_work_units,
    stage_configurations,
    usable_h,
)
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment, peak_loads
from costopt.optimize.solve import SolveResult

MARGINAL_HOURS = 1.0
MARGINAL_SHARE = 0.01
"""How much later a deadline and how much larger a budget is tried."""

NOISE = 2e-6
"""A saving below this share of the objective is the solver's tolerance."""

ROUNDING = 1e-9
"""Of the limit: the noise of sums of floats."""

Resolve = Callable[[PlanRequest, PlannedJob], SolveResult]


def binding_constraints(
    request: PlanRequest,
    parts: Sequence[PlannedJob],
    answer: SolveResult,
    resolve: Resolve | None = None,
) -> tuple[Constraint, ...]:
    """Return deadlines (h), budgets ($, kWh), then shared limits with their slack at the peak.

    ``parts`` are as solved. ``resolve`` plans a job alone again; without it prices that are not
    known yet are None. Capacity of single pools is included for pools that the plan uses or that
    have a shadow price.
    """
    again = resolve if answer.fleet is None else None
    return (
        *_deadlines(request, parts, answer, again),
        *_budgets(request, parts, answer, again),
        *_shared(request, parts, answer),
    )


def _deadlines(
    request: PlanRequest, parts: Sequence[PlannedJob], answer: SolveResult, again: Resolve | None
) -> Iterator[Constraint]:
    for part, segments in zip(parts, answer.segments, strict=True):
        demand = part.demand
        end_h = max((s.end_h for s in segments), default=demand.release_h)
        price = None
        if again is not None:
            later = replace(part, demand=replace(demand, due_h=demand.due_h + MARGINAL_HOURS))
            now_usd = sum(segment.score for segment in segments)
            price = _price(now_usd, again(request, later), MARGINAL_HOURS)
        yield Constraint(
            f"deadline of {demand.job.name} (h)", _left(demand.due_h, end_h), price, "h"
        )


def _budgets(
    request: PlanRequest, parts: Sequence[PlannedJob], answer: SolveResult, again: Resolve | None
) -> Iterator[Constraint]:
    budgets, totals = shared_budgets(request, parts), total_limits(request)
    own = len(budgets) - len(totals)
    for number, budget in enumerate(budgets):
        used = [answer.segments[job] for job in sorted(budget.jobs)]
        spent = sum(s.kwh if budget.in_kwh else s.usd for segments in used for s in segments)
        total = totals[number - own] if number >= own else None
        price = None
        if answer.fleet is not None:
            price = float(answer.fleet.duals.budget[number])
        elif again is not None and len(used) == 1:
            (job,) = budget.jobs
            more = again(*_with_more(request, parts[job], budget, total))
            now_usd = sum(segment.score for segment in used[0])
            price = _price(now_usd, more, budget.most * MARGINAL_SHARE)
        unit = "kWh" if budget.in_kwh else "$"
        shares = (
            (parts[job].demand.job.name, sum(s.kwh if budget.in_kwh else s.usd for s in own_use))
            for job, own_use in zip(sorted(budget.jobs), used, strict=True)
        )
        uses = tuple(
            LimitUse(name, amount, None if price is None else price * amount)
            for name, amount in shares
            if amount > 0
        )
        left = _left(budget.most, spent)
        yield Constraint(budget.name, left, price, unit, budget.most, uses)


def _with_more(
    request: PlanRequest, part: PlannedJob, budget: SharedBudget, total: TotalLimit | None
) -> tuple[PlanRequest, PlannedJob]:
    """The request and the job with the budget enlarged."""
    most = budget.most * (1 + MARGINAL_SHARE)
    if total is None:
        job = part.demand.job
        field = "max_kwh" if budget.in_kwh else "max_usd"
        larger = replace(job, budget=replace(job.budget, **{field: most}))
        return request, replace(part, demand=replace(part.demand, job=larger))
    if total.tenant is not None:
        tenant = replace(request.tenants[total.tenant], max_usd=most)
        return replace(request, tenants={**request.tenants, total.tenant: tenant}), part
    limits = request.policy.limits.with_maxima(BUDGET_LIMITS, most)
    return replace(request, policy=replace(request.policy, limits=limits)), part


def _price(now_usd: float, more: SolveResult, units: float) -> float | None:
    """Dollars saved per unit; None where the plan with more was not found in time."""
    if not more.solved:
        return None
    saved = now_usd - more.objective_usd
    return saved / units if saved > NOISE * max(abs(now_usd), 1e-9) else 0.0


def _shared(
    request: PlanRequest, parts: Sequence[PlannedJob], answer: SolveResult
) -> Iterator[Constraint]:
    limits = answer.fleet.capacity.limits if answer.fleet else shared_limits(request)
    peaks = peak_loads(request, limits, list(zip(parts, answer.segments, strict=True)))
    uses = _uses_by_limit(request, limits, parts, answer)
    tenants = {None, *(part.demand.job.tenant for part in parts)}
    for number, limit in enumerate(limits):
        if limit.tenant not in tenants:
            continue
        price = None if answer.fleet is None else float(answer.fleet.duals.shared[number].sum())
        if limit.pool is not None and number not in peaks and not price:
            continue
        unit = limit.resource.unit
        slack = _left(limit.most, peaks.get(number, 0.0))
        yield Constraint(_name(limit, unit), slack, price, unit, limit.most, tuple(uses[number]))


def _uses_by_limit(
    request: PlanRequest,
    limits: Sequence[SharedLimit],
    parts: Sequence[PlannedJob],
    answer: SolveResult,
) -> Mapping[int, list[LimitUse]]:
    """What each job holds of each limit at most and pays for it, by the number of the limit."""
    uses: dict[int, list[LimitUse]] = defaultdict(list)
    for part, segments in zip(parts, answer.segments, strict=True):
        peaks = peak_loads(request, limits, [(part, segments)]) if segments else {}
        for number, load in peaks.items():
            if load > 0:
                paid = _paid_usd(request, limits[number], number, part, segments, answer.fleet)
                uses[number].append(LimitUse(part.demand.job.name, load, paid))
    return uses


def _paid_usd(
    request: PlanRequest,
    limit: SharedLimit,
    number: int,
    part: PlannedJob,
    segments: Sequence[Segment],
    fleet: FleetPlan | None,
) -> float | None:
    """The limit's dual values over the slots in which the segments hold it, times their load."""
    if fleet is None:
        return None
    paid = 0.0
    for slot, price in zip(fleet.slots, fleet.duals.shared[number].tolist(), strict=True):
        for segment in segments if price > 0 else ():
            overlap_h = min(slot.end_h, segment.end_h) - max(slot.start_h, segment.begin_h)
            if overlap_h > ROUNDING:
                paid += price * limit.load(request, part.demand, part.table, segment.row)
    return paid


def _left(most: float, used: float) -> float:
    """0 where only rounding is left, or a plan that is in budget as simulated exceeds it before."""
    return 0.0 if most - used <= ROUNDING * max(abs(most), 1.0) else most - used


def _name(limit: SharedLimit, unit: str) -> str:
    return f"{limit.name} ({unit})"


Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EnteringPrice:
    """The search for entering prices, given the table, the demand and the plan's objective.

    ``partners`` are the configurations j of the module's formula.
    """

    table: ConfigurationTable
    demand: Demand
    objective: Objective
    plan_score_usd: float
    fits: NDArray[np.bool_]
    in_time: NDArray[np.bool_]
    alone_usd: Array
    partners: Rows

    @classmethod
    def of(
        cls,
        table: ConfigurationTable,
        demand: Demand,
        objective: Objective,
        plan_score_usd: float,
        *,
        mixes: bool = True,
    ) -> Self:
        """Return the search for entering prices, given the table and the plan's objective.

        ``mixes`` False examines single configurations only, as where prices vary.
        """
        fits = np.ones(len(table), dtype=bool)
        for number, stage in enumerate(demand.stages):
            fits &= can_run_stage(table, stage, number)
        undated = (table.from_h <= demand.release_h) & (table.until_h >= demand.due_h) & table.now
        budget = demand.job.budget
        simple = len(demand.stages) == 1 and budget.max_usd is None and budget.max_kwh is None
        rows = (
            [option.row for option in stage_configurations(table, demand)]
            if mixes and simple
            else []
        )
        return cls(
            table,
            demand,
            objective,
            plan_score_usd,
            fits,
            single_held_h(table, demand) <= usable_h(table, demand),
            single_score(table, demand),
            np.array([row for row in rows if undated[row]], dtype=np.int64),
        )

    def usd_per_hour(self, offer: int) -> float | None:
        """Return the highest price per node-hour at which this offer is in a plan as good.

        ``offer`` is the offer's number. The result is None where there is no such price above 0.
        """
        own = np.flatnonzero((self.table.offer == offer) & self.fits)
        if not len(own) or self.objective.usd <= 0:
            return None
        first = int(own[0])
        node_usd = self.table.usd_per_hour[first] - self.table.moving_usd_per_hour[first]
        present = float(node_usd) / int(self.table.nodes[first])
        found = [*self._single(own), *(x for row in own.tolist() for x in self._mixed(row, offer))]
        price = present + max(found, default=-np.inf)
        return price if price > 0 else None

    def _single(self, rows: Rows) -> list[float]:
        """How much more a node may cost, of the rows that end in time alone."""
        table, rows = self.table, rows[self.in_time[rows]]
        hours = single_work_units(table, self.demand)[rows] / table.paid_units_per_hour[rows]
        more = self._more(rows, hours, self.alone_usd[rows])
        return [float(x) for x in more]

    def _mixed(self, row: int, offer: int) -> list[float]:
        """The same of mixes with each partner in another pool."""
        table, demand = self.table, self.demand
        others = self.partners[table.offer[self.partners] != offer]
        mine = float(table.paid_units_per_hour[row] * table.pace[0, row])
        units = table.paid_units_per_hour[others] * table.pace[0, others]
        left_h = demand.hours_left - table.start_h[row] - table.start_h[others]
        determinant = mine * table.stretch[others] - units * table.stretch[row]
        with np.errstate(divide="ignore", invalid="ignore"):
            mine_h = (demand.units * table.stretch[others] - units * left_h) / determinant
            other_h = (mine * left_h - demand.units * table.stretch[row]) / determinant
        real = np.isfinite(mine_h) & np.isfinite(other_h) & (mine_h > 0) & (other_h > 0)
        mine_h, other_h, others = mine_h[real], other_h[real], others[real]
        cost = mine_h * table.score_per_hour[row] + table.start_score[row]
        cost = cost + other_h * table.score_per_hour[others] + table.start_score[others]
        return [float(x) for x in self._more(np.full(len(others), row), mine_h, cost)]

    def _more(self, rows: Rows, hours: Array, cost: Array) -> Array:
        table = self.table
        slope = self.objective.usd * table.nodes[rows] * (hours + table.billed_startup_h[rows])
        more: Array = (self.plan_score_usd - cost) / np.maximum(slope, 1e-300)
        return more
