"""Why there is no plan: the constraint whose removal makes one possible, in the user's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from costopt.domain.limits import LimitScope, LimitUnit
from costopt.domain.plan import Rejection
from costopt.domain.policy import LIMIT_SPECS, Limits
from costopt.optimize.demand import Demand
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import can_run_stage, single_held_h
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest

IsFeasible = Callable[[PlanRequest], bool]

EARLY_CHECKS = {
    code: order
    for order, code in enumerate(
        ("policy", "price_unknown", "price_invalid", "price_stale", "unknown_instance_type",
         "resources")
    )
}  # fmt: skip
"""The checks that judge an offer without regard to how the job runs on it, in their order."""


def find_binding_constraint(
    request: PlanRequest,
    parts: Sequence[PlannedJob],
    rejections: Sequence[Rejection],
    feasible: IsFeasible,
    sure: IsFeasible,
) -> str:
    """Return the binding constraint of an infeasible request, in the user's words.

    ``parts`` holds what configurations each job has; ``feasible`` solves a relaxed request, and
    ``sure`` says whether a plan of it also respects time and budget as simulated. Limits and
    budgets are judged by solving without them, one at a time, time and risk in closed form, since
    no mix is faster than the fastest configuration.
    """
    empty = next((part for part in parts if not len(part.table)), None)
    if empty is not None:
        return _no_configuration(request, empty, rejections, feasible)
    for part in parts:
        if part.demand.hours_left <= 0:
            return _no_time(part)
    if feasible(request):
        return _over_budget(request, sure) or _unsure(request)
    for name, relaxed in _relaxations(request):
        if feasible(relaxed):
            return name
    for part in parts:
        reason = _time(part) or _risk(part, request)
        if reason is not None:
            return reason
    return "several constraints together: the plan needs more than one of them relaxed"


def _over_budget(request: PlanRequest, sure: IsFeasible) -> str | None:
    """The budget that plans keep in the model, and exceed as simulated."""
    for name, relaxed in _relaxations(request):
        if name.startswith("budget:") and sure(relaxed):
            return name
    return None


def _unsure(request: PlanRequest) -> str:
    """Plans fit, but the simulation finds none as sure as the policy asks."""
    return (
        f"risk: the plans that fit are on time with a probability below "
        f"{request.policy.risk.on_time:g}, which the policy asks for"
    )


def _no_configuration(
    request: PlanRequest, part: PlannedJob, rejections: Sequence[Rejection], feasible: IsFeasible
) -> str:
    name = part.demand.job.name
    if not request.offers and not rejections:
        return f"resources: there are no offers for job {name!r}"
    if {"quota", "limit", "zone_share", "capacity"} & {r.code for r in rejections}:
        for reason, relaxed in _relaxations(request):
            if feasible(relaxed):
                return reason
    offers = max(len(request.offers), len({r.pool for r in rejections}))
    return f"resources: none of {offers} offers can run job {name!r}: {_obstacles(rejections)}"


def _obstacles(rejections: Sequence[Rejection]) -> str:
    """How many offers each check refused, and what refused those that came furthest."""
    codes = Counter(r.code for r in rejections)
    by_code = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    furthest = max(codes, key=lambda code: EARLY_CHECKS.get(code, len(EARLY_CHECKS)))
    reasons = Counter(r.reason for r in rejections if r.code == furthest)
    return f"{by_code}; {reasons.most_common(1)[0][0]}" + (", …" if len(reasons) > 1 else "")


def _time(part: PlannedJob) -> str | None:
    """Whether even the expected time of the fastest allowed configurations is too long."""
    demand, table = part.demand, part.table
    per_hour = table.paid_units_per_hour / table.calendar
    needed_h = _fastest_h(part, 1 / per_hour)
    if needed_h is None:
        return (
            f"resources: no offer fits the gang size and the known speeds of every phase of job "
            f"{demand.job.name!r}"
        )
    if needed_h <= demand.hours_left:
        return None
    row = int(np.argmax(per_hour))
    return (
        f"deadline: job {demand.job.name!r} needs {needed_h:,.1f} h at the fastest allowed "
        f"configuration ({table.label(row)}), {_left(demand)}"
    )


def _left(demand: Demand) -> str:
    """Return the hours that are left, and why they are fewer than until the deadline."""
    left = f"{demand.hours_left:,.1f} h are left"
    if demand.reserve_h <= 0:
        return left
    return f"{left} (the policy holds back {demand.reserve_h * 60:,.0f} min)"


def _no_time(part: PlannedJob) -> str:
    demand = part.demand
    job = demand.job
    return (
        f"deadline: job {job.name!r} has no time left: its deadline, less the reserve that the "
        f"policy holds back, is {abs(demand.due_h) * 60:,.0f} min "
        f"{'ahead' if demand.due_h >= 0 else 'ago'}, and it may start in "
        f"{demand.release_h * 60:,.0f} min"
    )


def _risk(part: PlannedJob, request: PlanRequest) -> str | None:
    """Whether the expected time fits but the time held for the on-time probability does not."""
    demand, table = part.demand, part.table
    needed_h = _fastest_h(part, table.stretch / table.paid_units_per_hour)
    if needed_h is None or needed_h <= demand.hours_left:
        return None
    row = int(np.argmin(single_held_h(table, demand)))
    return (
        f"risk: to be on time with probability {request.policy.risk.on_time:g} job "
        f"{demand.job.name!r} must hold {needed_h:,.1f} h at the surest allowed configuration "
        f"({table.label(row)}), {_left(demand)}"
    )


def _fastest_h(part: PlannedJob, hours_per_unit: Array) -> float | None:
    """A start and every stage on its fastest configuration; None where a stage has none."""
    demand, table = part.demand, part.table
    living = bool(table.running.any())
    start_h = float(table.start_h.min())
    needed_h = min(demand.starting_h, start_h) if living else start_h
    for number, stage in enumerate(demand.stages):
        fits = can_run_stage(table, stage, number)
        if not fits.any():
            return None
        hours = hours_per_unit[fits] / table.pace[number, fits]
        needed_h += stage.units * float(hours.min())
    return needed_h


def _relaxations(request: PlanRequest) -> Iterator[tuple[str, PlanRequest]]:
    """(what binds, the request without it), the narrowest first."""
    for quota in request.quotas:
        rest = tuple(q for q in request.quotas if q is not quota)
        yield f"quota: {quota.name}", replace(request, quotas=rest)
    yield from _tenant_relaxations(request)
    yield from _limit_relaxations(request)
    yield from _budget_relaxations(request)
    if any(offer.nodes_available is not None for offer in request.offers):
        offers = tuple(replace(offer, nodes_available=None) for offer in request.offers)
        yield "capacity: too few nodes are available now", replace(request, offers=offers)


def _tenant_relaxations(request: PlanRequest) -> Iterator[tuple[str, PlanRequest]]:
    for name, tenant in request.tenants.items():
        for field, value, unlimited in (
            ("max_nodes", tenant.max_nodes, replace(tenant, max_nodes=None)),
            ("max_usd_per_hour", tenant.max_usd_per_hour, replace(tenant, max_usd_per_hour=None)),
            ("max_usd", tenant.max_usd, replace(tenant, max_usd=None)),
        ):
            if value is not None:
                tenants = {**request.tenants, name: unlimited}
                kind = "budget" if field == "max_usd" else "limit"
                yield (
                    f"{kind}: the {field} of {value:g} of tenant {name}",
                    replace(request, tenants=tenants),
                )


def _limit_relaxations(request: PlanRequest) -> Iterator[tuple[str, PlanRequest]]:
    limits = request.policy.limits
    scopes = (LimitScope.CONCURRENT, LimitScope.GANG, LimitScope.JOB, LimitScope.MONTH)
    for scope in scopes:
        for spec in LIMIT_SPECS.values():
            value = getattr(limits, spec.field)
            if spec.scope is scope and spec.unit is not LimitUnit.FLAG and value is not None:
                kind = "budget" if spec.is_budget else "limit"
                name = f"{kind}: the policy's {spec.field} of {value:g}"
                yield name, _with_limits(request, limits.with_maxima((spec,), None))


def _budget_relaxations(request: PlanRequest) -> Iterator[tuple[str, PlanRequest]]:
    for view in request.jobs:
        budget = view.job.budget
        for name, value, unlimited in (
            ("max_usd", budget.max_usd, replace(budget, max_usd=None)),
            ("max_kwh", budget.max_kwh, replace(budget, max_kwh=None)),
            (
                "max_usd_per_month",
                budget.max_usd_per_month,
                replace(budget, max_usd_per_month=None),
            ),
            ("max_usd_per_hour", budget.max_usd_per_hour, replace(budget, max_usd_per_hour=None)),
        ):
            if value is not None:
                free = replace(view, job=replace(view.job, budget=unlimited))
                jobs = tuple(free if other is view else other for other in request.jobs)
                yield (
                    f"budget: the {name} of {value:g} of job {view.job.name!r}",
                    replace(request, jobs=jobs),
                )


def _with_limits(request: PlanRequest, limits: Limits) -> PlanRequest:
    return replace(request, policy=replace(request.policy, limits=limits))
