"""What-if: plans under other policies, deadlines and markets; dollars against kilowatt-hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from costopt.domain.errors import InfeasibleError
from costopt.domain.market import CapacityType
from costopt.domain.plan import Allocation, Forecast, Plan, PlanStatus
from costopt.domain.policy import Policy
from costopt.optimize.layout import Segment, allocations_of
from costopt.optimize.model import JobPart
from costopt.optimize.planner import SURE_ENOUGH, plan, prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.risk import fallback_row, forecast_segments, with_margin
from costopt.optimize.solve import Answer, Settings, solve_parts

SECOND_AIM = 1e-4
"""The weight of the other figure at an end of the frontier: it decides between equals only."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One what-if: a policy, a deadline, allowed capacity types, and the plan they lead to."""

    policy: str
    deadline_at: datetime
    capacity_types: tuple[CapacityType, ...]
    plan: Plan

    @property
    def forecast(self) -> Forecast | None:
        """The job's forecast; None where there is no plan."""
        solved = self.plan.status is not PlanStatus.INFEASIBLE and self.plan.forecasts
        return self.plan.forecasts[0][1] if solved else None


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A plan that no other point beats in both dollars and kWh: means, the fallback included."""

    usd: float
    kwh: float
    forecast: Forecast
    allocations: tuple[Allocation, ...]


def scenarios(
    request: PlanRequest,
    *,
    policies: Sequence[Policy] = (),
    deadlines: Sequence[datetime] = (),
    capacity_types: Sequence[tuple[CapacityType, ...]] = (),
    time_limit_s: float = 10.0,
) -> tuple[Scenario, ...]:
    """A plan for every policy × deadline × capacity types; an empty axis keeps the request's.

    The request holds one job and offers that are not yet screened by a policy. Candidates are left
    out. Raises as ``plan`` does.
    """
    _one_job(request)
    found: list[Scenario] = []
    for policy, deadline_at, kinds in _combinations(request, policies, deadlines, capacity_types):
        (view,) = request.jobs
        limited = replace(policy, limits=replace(policy.limits, capacity_types=kinds))
        jobs = (replace(view, job=replace(view.job, deadline_at=deadline_at)),)
        made = plan(
            replace(request, jobs=jobs, policy=limited), time_limit_s=time_limit_s, explain=False
        )
        found.append(Scenario(policy.name, deadline_at, kinds, made))
    return tuple(found)


def frontier(
    request: PlanRequest, *, points: int = 12, time_limit_s: float = 10.0
) -> tuple[FrontierPoint, ...]:
    """The non-dominated plans of one job, by ascending dollars; empty where there is no plan.

    The ends are the cheapest and the most frugal plan; between them the dollars are minimized
    under evenly spaced limits of kWh (the ε-constraint method, which unlike a sweep of weights
    also finds points off the convex hull). Fewer come back where dollars and kWh agree.
    Each is planned with time held back for the worst and, where uninterrupted capacity is allowed,
    counting on it instead. Raises as ``plan`` does.
    """
    _one_job(request)
    parts, _ = prepare(request)
    if not parts or not len(parts[0].table) or parts[0].demand.hours_left <= 0:
        return ()
    (part,) = parts
    limit_s = time_limit_s / max(3 * points, 1)
    tables = [part.table]
    if fallback_row(part.table, part.demand) is not None:
        tables.extend(with_margin(part.table, share) for share in (0.5, 0.0))
    found: list[FrontierPoint] = []
    for number, table in enumerate(tables):
        variant = replace(part, table=table)
        swept = _sweep(request, variant, points, limit_s)
        judged = [_point(request, part, segments) for segments in swept]
        asked = request.policy.risk.on_time - SURE_ENOUGH
        found.extend(p for p in judged if number == 0 or p.forecast.on_time >= asked)
    return tuple(_non_dominated(found))


def _sweep(
    request: PlanRequest, part: JobPart, points: int, limit_s: float
) -> list[tuple[Segment, ...]]:
    """The ends of the frontier and the plans between them, as segments."""
    cheapest = _solve(request, _aimed(part, usd=1.0, kwh=SECOND_AIM), limit_s)
    frugal = _solve(request, _aimed(part, usd=SECOND_AIM, kwh=1.0), limit_s)
    if not (cheapest.solved and frugal.solved):
        return []
    answers = [cheapest, frugal]
    most, least = _kwh(cheapest), _kwh(frugal)
    if points > 2 and most > least * (1 + 1e-6):
        limits_kwh = np.linspace(most, least, points)[1:-1].tolist()
        answers.extend(_solve(request, _within_kwh(part, limit), limit_s) for limit in limits_kwh)
    return [answer.segments[0] for answer in answers if answer.solved]


def _one_job(request: PlanRequest) -> None:
    if len(request.jobs) != 1:
        raise InfeasibleError(
            f"a what-if needs one job, this request has {len(request.jobs)}",
            hint="ask for one job at a time",
        )


def _combinations(
    request: PlanRequest,
    policies: Sequence[Policy],
    deadlines: Sequence[datetime],
    capacity_types: Sequence[tuple[CapacityType, ...]],
) -> Iterator[tuple[Policy, datetime, tuple[CapacityType, ...]]]:
    for policy in policies or (request.policy,):
        for deadline_at in deadlines or (request.jobs[0].job.deadline_at,):
            for kinds in capacity_types or (policy.limits.capacity_types,):
                yield policy, deadline_at, kinds


def _solve(request: PlanRequest, part: JobPart, time_limit_s: float) -> Answer:
    return solve_parts(request, [part], Settings(time_limit_s, 1e-4))


def _aimed(part: JobPart, *, usd: float, kwh: float) -> JobPart:
    """The part with other weights of dollars and kWh."""
    table = part.table
    return replace(
        part,
        table=replace(
            table,
            score_per_hour=usd * table.usd_per_hour + kwh * table.kwh_per_hour,
            start_score=usd * table.usd_per_start + kwh * table.kwh_per_start,
        ),
    )


def _within_kwh(part: JobPart, max_kwh: float) -> JobPart:
    aimed = _aimed(part, usd=1.0, kwh=SECOND_AIM)
    job = aimed.demand.job
    own = job.budget.max_kwh
    budget = replace(job.budget, max_kwh=max_kwh if own is None else min(own, max_kwh))
    return replace(aimed, demand=replace(aimed.demand, job=replace(job, budget=budget)))


def _kwh(answer: Answer) -> float:
    return sum(segment.kwh for segment in answer.segments[0])


def _point(request: PlanRequest, part: JobPart, segments: tuple[Segment, ...]) -> FrontierPoint:
    forecast, samples = forecast_segments(part.table, segments, part.demand, request.now)
    return FrontierPoint(
        float(samples.usd.mean()),
        forecast.kwh,
        forecast,
        allocations_of(part, segments, request.now),
    )


def _non_dominated(points: Sequence[FrontierPoint]) -> Iterator[FrontierPoint]:
    """By ascending dollars, each with fewer kWh than all before it."""
    least = float("inf")
    for point in sorted(points, key=lambda p: (p.usd, p.kwh)):
        if point.kwh < least * (1 - 1e-6):
            least = point.kwh
            yield point
