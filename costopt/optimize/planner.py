"""plan(): from a request to a plan with its forecasts, candidates and reasons."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costopt.domain.plan import Candidate, Constraint, Forecast, Plan, PlanStatus, Rejection
from costopt.optimize.binding import binding_of
from costopt.optimize.candidates import candidates_of
from costopt.optimize.demand import demand_of
from costopt.optimize.enumerate import Enumeration
from costopt.optimize.fleet.warm import Warm
from costopt.optimize.layout import Segment, allocations_of
from costopt.optimize.model import JobPart
from costopt.optimize.request import PlanRequest
from costopt.optimize.risk import (
    done_forecast,
    fallback_row,
    forecast_segments,
    mean_score_usd,
    with_margin,
)
from costopt.optimize.shared import totals_limit_usd
from costopt.optimize.solve import Answer, Settings, solve_parts
from costopt.optimize.solver import Outcome

TIGHTENINGS = 3
"""How often the due time is drawn in where the simulation finds the plan less sure than asked."""

MARGINS = (0.0, 0.33, 0.67)
"""Shares of the margin that are tried where there is a fallback, the boldest first."""

WORTHWHILE = 1e-3
"""A bolder plan that saves less than this share in the model is not looked at further."""

SURE_ENOUGH = 0.01
"""How far the simulated probability may fall short: the noise of 2,000 samples."""


def plan(
    request: PlanRequest,
    *,
    time_limit_s: float = 10.0,
    gap: float = 0.005,
    solver: str | None = None,
    explain: bool = True,
    warm: Warm | None = None,
) -> Plan:
    """The cheapest plan by the policy's objective that ends every job in time.

    Status OPTIMAL (within ``gap`` of the bound), FEASIBLE (time ran out first, or jobs compete and
    the bound is that of the jobs apart), INFEASIBLE (``binding`` says why) or EMPTY (nothing is
    left to do). Where an INFEASIBLE plan has allocations, they are of the jobs that can be served.
    ``warm`` makes a plan start from the last one and is changed by it. ``solver`` is "highs", "cbc"
    or None for the best installed; ``explain`` False leaves out the candidates, which are filled
    for a single job only. Raises InfeasibleError for a job whose figures are not finite and
    SolverError where the solver fails.
    """
    started = time.perf_counter()
    settings = Settings(time_limit_s, gap, solver, warm)
    parts, rejections = prepare(request)
    if not parts:
        return _empty(request)
    answer, planned = _solve_best(request, parts, settings)
    forecasts = _forecasts(request, parts, planned)
    candidates = _candidates(request, parts, answer) if explain and len(parts) == 1 else ()
    made = Plan(
        status=_status(answer),
        made_at=request.now,
        allocations=tuple(
            allocation
            for part, segments in zip(parts, answer.segments, strict=False)
            for allocation in allocations_of(part, segments, request.now)
        ),
        forecasts=forecasts,
        candidates=candidates,
        rejections=request.rejections + rejections,
        solver=answer.solver,
        solve_s=time.perf_counter() - started,
    )
    if not answer.solved:
        binding = _binding(request, parts, rejections, answer, settings)
        return replace(made, binding=binding)
    objective, bound = answer.objective_usd, answer.bound_usd
    return replace(
        made,
        constraints=_constraints(request, parts, answer),
        objective_usd=objective,
        bound_usd=bound,
        gap=max(0.0, objective - bound) / max(abs(objective), 1e-9),
    )


def prepare(request: PlanRequest) -> tuple[list[JobPart], tuple[Rejection, ...]]:
    """Every unfinished job with its table of configurations, and the offers left out.

    Raises InfeasibleError for a job whose figures are not finite.
    """
    enumeration = Enumeration(request)
    parts: list[JobPart] = []
    rejections: dict[Rejection, None] = {}
    for view in request.jobs:
        demand = demand_of(view, request.now, request.policy.risk.reserve_s)
        if demand is not None:
            table, refused = enumeration.table(demand)
            parts.append(JobPart(demand, table, []))
            rejections |= dict.fromkeys(refused)
    return parts, tuple(rejections)


def _solve(request: PlanRequest, parts: Sequence[JobPart], settings: Settings) -> Answer:
    """Jobs that cannot run at all are not served; the others are planned without them."""
    able = [p for p in parts if len(p.table) and p.demand.hours_left > 0]
    if not able:
        return Answer(Outcome.INFEASIBLE)
    answer = solve_parts(request, able, settings)
    if len(able) == len(parts):
        return answer
    planned = iter(answer.segments or ((),) * len(able))
    chosen = {id(p) for p in able}
    unable = tuple(p.demand.job.name for p in parts if id(p) not in chosen)
    return replace(
        answer,
        outcome=Outcome.INFEASIBLE,
        segments=tuple(next(planned) if id(p) in chosen else () for p in parts),
        unserved=(*answer.unserved, *unable),
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A job's plan as simulated: hours too late at the asked probability, 0 where sure enough."""

    late_h: float
    score_usd: float
    forecast: Forecast


def _solve_best(
    request: PlanRequest, parts: Sequence[JobPart], settings: Settings
) -> tuple[Answer, dict[str, Forecast]]:
    """The cheapest, as simulated, of plans that hold back all, some or none of the margin.

    A margin pays for the worst case in advance; where uninterrupted capacity is allowed, changing
    to it only when the worst comes is often cheaper and as sure.
    """
    margins = _margins(settings.warm)
    held, held_judged = _solve_surely(request, parts, settings)
    best, judged = held, held_judged
    served = [p for p, own in zip(parts, held.segments, strict=False) if own]
    names = [part.demand.job.name for part in served]
    chosen: float | None = None
    if len(parts) == 1 and fallback_row(parts[0].table, parts[0].demand) is not None:
        for share in margins:
            bolder = _solve_bolder(request, parts[0], share, settings)
            if held.solved and bolder.objective_usd >= held.objective_usd * (1 - WORTHWHILE):
                break
            if not bolder.solved:
                continue
            one = _judge(request, parts[0], bolder.segments[0])
            if one.late_h <= 0 and (not judged or one.score_usd < judged[0].score_usd):
                best, judged = bolder, [one]
                chosen = share
    if settings.warm is not None:
        settings.warm.margin = chosen
    return best, {n: one.forecast for n, one in zip(names, judged, strict=False)}


def _margins(warm: Warm | None) -> tuple[float, ...]:
    """The share that was best the last time, if there was one; else all of them."""
    if warm is None or warm.gap is None:
        return MARGINS
    return () if warm.margin is None else (warm.margin,)


def _solve_bolder(request: PlanRequest, part: JobPart, share: float, settings: Settings) -> Answer:
    bolder = replace(part, table=with_margin(part.table, share))
    warm = None if settings.warm is None else settings.warm.of_margin(share)
    return _solve(request, [bolder], replace(settings, warm=warm))


def _solve_surely(
    request: PlanRequest, parts: Sequence[JobPart], settings: Settings
) -> tuple[Answer, list[_Judged]]:
    """Solve, simulate, and draw the due time in until the plan is as sure as the policy asks.

    The margins of the model treat each configuration by itself; a mix of them can be less sure.
    """
    answer = _solve(request, parts, settings)
    tried = list(parts)
    for _ in range(TIGHTENINGS):
        judged = [
            _judge(request, part, segments)
            for part, segments in zip(parts, answer.segments, strict=False)
            if segments
        ]
        if not answer.solved or len(parts) > 1 or judged[0].late_h <= 0:
            return answer, judged
        tried = [
            replace(part, demand=replace(part.demand, due_h=part.demand.due_h - one.late_h * 1.1))
            for part, one in zip(tried, judged, strict=True)
        ]
        answer = _solve(request, tried, settings)
    return Answer(Outcome.INFEASIBLE), []


def _judge(request: PlanRequest, part: JobPart, segments: Sequence[Segment]) -> _Judged:
    asked = min(request.policy.risk.on_time, 1.0) - SURE_ENOUGH
    forecast, samples = forecast_segments(part.table, segments, part.demand, request.now)
    score_usd = mean_score_usd(samples, request.policy.objective)
    if forecast.on_time >= asked:
        return _Judged(0.0, score_usd, forecast)
    deadline_h = (part.demand.job.deadline_at - request.now).total_seconds() / 3600
    ordered: list[float] = sorted(samples.finish_h[0].tolist())
    finish_h = ordered[min(int(asked * len(ordered)), len(ordered) - 1)]
    return _Judged(max(1e-6, finish_h - deadline_h), score_usd, forecast)


def _binding(
    request: PlanRequest,
    parts: Sequence[JobPart],
    rejections: Sequence[Rejection],
    answer: Answer,
    settings: Settings,
) -> str:
    if answer.outcome is Outcome.UNKNOWN:
        return f"time limit: no plan was found within {settings.time_limit_s:g} s"

    def feasible(relaxed: PlanRequest) -> bool:
        quick = replace(settings, time_limit_s=min(2.0, settings.time_limit_s), gap=0.05)
        loose, _ = prepare(relaxed)
        return _solve(relaxed, loose, quick).solved

    return binding_of(request, parts, (*request.rejections, *rejections), feasible)


def _forecasts(
    request: PlanRequest, parts: Sequence[JobPart], planned: Mapping[str, Forecast]
) -> tuple[tuple[str, Forecast], ...]:
    """Of every planned job, and of every one that has nothing left to do."""
    unfinished = {part.demand.job.name for part in parts}
    done = done_forecast(request.now)
    return tuple(
        (view.job.name, planned.get(view.job.name, done))
        for view in request.jobs
        if view.job.name in planned or view.job.name not in unfinished
    )


def _candidates(
    request: PlanRequest, parts: Sequence[JobPart], answer: Answer
) -> tuple[Candidate, ...]:
    (part,) = parts
    if not len(part.table):
        return ()
    segments = answer.segments[0] if answer.segments else ()
    return candidates_of(
        part.table, part.demand, segments, answer.objective_usd, request.policy, request.now
    )


def _constraints(
    request: PlanRequest, parts: Sequence[JobPart], answer: Answer
) -> tuple[Constraint, ...]:
    """Slack of every time limit (hours) and budget (dollars, kWh)."""
    found: list[Constraint] = []
    total_usd = 0.0
    for part, segments in zip(parts, answer.segments, strict=True):
        demand, name = part.demand, part.demand.job.name
        end_h = max((s.end_h for s in segments), default=demand.release_h)
        found.append(Constraint(f"deadline of {name} (h)", demand.due_h - end_h))
        usd, kwh = sum(s.usd for s in segments), sum(s.kwh for s in segments)
        total_usd += usd
        if demand.job.budget.max_usd is not None:
            found.append(Constraint(f"max_usd of {name} ($)", demand.job.budget.max_usd - usd))
        if demand.job.budget.max_kwh is not None:
            found.append(Constraint(f"max_kwh of {name} (kWh)", demand.job.budget.max_kwh - kwh))
    total = totals_limit_usd(request)
    if total is not None:
        found.append(Constraint(f"{total[0]} of the policy ($)", total[1] - total_usd))
    found.extend(Constraint(name, 0.0) for name in answer.blocked)
    return tuple(found)


def _status(answer: Answer) -> PlanStatus:
    if answer.outcome is Outcome.OPTIMAL:
        return PlanStatus.OPTIMAL
    return PlanStatus.FEASIBLE if answer.solved else PlanStatus.INFEASIBLE


def _empty(request: PlanRequest) -> Plan:
    done = done_forecast(request.now)
    return Plan(
        status=PlanStatus.EMPTY,
        made_at=request.now,
        allocations=(),
        forecasts=tuple((view.job.name, done) for view in request.jobs),
        rejections=request.rejections,
        objective_usd=0.0,
        bound_usd=0.0,
        gap=0.0,
    )
