"""What binds a plan: of every limit the slack, and the dollars that a little more of it would save.

Shadow prices of what jobs share come from the prices of the relaxation (``fleet.master``): with one
unit more over the whole plan its bound falls by the sum of the limit's prices over the slots, so
that no plan of these gangs saves more. Where a job was planned by itself, deadline and budgets are
given a little more and the job is planned again: a finite difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from costopt.domain.plan import Constraint
from costopt.domain.policy import BUDGET_LIMITS
from costopt.optimize.fleet.budget import SharedBudget, shared_budgets
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import peak_loads
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import SharedLimit, TotalLimit, shared_limits, total_limits
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
    """Deadlines (h), budgets ($, kWh), then limits that the jobs share, with the room at the peak.

    ``parts`` are as solved. ``resolve`` plans a job by itself again; without it prices that are not
    known yet are None. The room in single pools is told of those that the plan uses or that have a
    price.
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
        yield Constraint(budget.name, _left(budget.most, spent), price, unit)


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
    tenants = {None, *(part.demand.job.tenant for part in parts)}
    for number, limit in enumerate(limits):
        if limit.tenant not in tenants:
            continue
        price = None if answer.fleet is None else float(answer.fleet.duals.shared[number].sum())
        if limit.pool is not None and number not in peaks and not price:
            continue
        unit = limit.resource.unit
        slack = _left(limit.most, peaks.get(number, 0.0))
        yield Constraint(_name(limit, unit), slack, price, unit)


def _left(most: float, used: float) -> float:
    """0 where only rounding is left, or was used too much."""
    return 0.0 if abs(most - used) <= ROUNDING * max(abs(most), 1.0) else most - used


def _name(limit: SharedLimit, unit: str) -> str:
    return f"{limit.name} ({unit})"
