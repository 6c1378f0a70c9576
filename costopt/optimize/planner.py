"""plan(): from a request to a plan with its forecasts, candidates and reasons."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costopt.domain.plan import Candidate, Constraint, Forecast, Plan, PlanStatus, Rejection
from costopt.optimize.aims import narrowed
from costopt.optimize.alone import alone_plans
from costopt.optimize.binding import binding_of
from costopt.optimize.candidates import Made, candidates_of
from costopt.optimize.constraints import constraints_of
from costopt.optimize.demand import demand_of
from costopt.optimize.enumerate import Enumeration
from costopt.optimize.fallback import fallback_row
from costopt.optimize.fleet.warm import Warm
from costopt.optimize.layout import Segment, allocations_of
from costopt.optimize.lexicographic import solve_in_order
from costopt.optimize.model import JobPart
from costopt.optimize.request import PlanRequest
from costopt.optimize.risk import (
    done_forecast,
    forecast_segments,
    mean_score_usd,
    with_margin,
)
from costopt.optimize.solve import Answer, Settings
from costopt.optimize.solver import Outcome

TIGHTENINGS = 3
"""How often the due time is drawn in where the simulation finds the plan less sure than asked."""

MARGINS = (0.0, 0.33, 0.67)
"""Shares of the margin that are tried where there is a fallback, the boldest first."""

WORTHWHILE = 1e-3
"""A bolder plan that saves less than this share in the model is not looked at further."""

EXPLAIN_S, EXPLAINED = 0.5, 5
"""Seconds for each plan that a shadow price takes, and jobs up to which these are made."""

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
    least = narrowed(request, parts) if len(parts) == 1 else request
    best = _solve_best(least, parts, settings)
    answer = best.answer
    forecasts = _forecasts(request, parts, best.forecasts())
    candidates = _candidates(least, parts, best) if explain and len(parts) == 1 else ()
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
        unserved=answer.unserved,
        build_s=answer.build_s,
        solver=answer.solver,
        solve_s=time.perf_counter() - started,
    )
    if not answer.solved:
        binding = _binding(request, parts, rejections, answer, settings)
        return replace(made, binding=binding)
    objective, bound = answer.objective_usd, answer.bound_usd
    return replace(
        made,
        constraints=_constraints(least, best, settings, explain=explain),
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
    answer = solve_in_order(request, able, settings)
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


@dataclass(frozen=True, slots=True)
class _Best:
    """The plan that is made, the jobs as it was solved for, and the simulated one of each served.

    ``bound_usd`` holds at every margin that was tried.
    """

    answer: Answer
    parts: Sequence[JobPart]
    judged: Sequence[_Judged]
    bound_usd: float

    def forecasts(self) -> dict[str, Forecast]:
        """Of the jobs that are served."""
        served = [p for p, own in zip(self.parts, self.answer.segments, strict=False) if own]
        pairs = zip(served, self.judged, strict=False)
        return {part.demand.job.name: one.forecast for part, one in pairs}

    def or_bolder(self, answer: Answer, part: JobPart, one: _Judged) -> _Best:
        """This, or a plan of the only job where it is sure and cheaper as simulated."""
        bound_usd = min(self.bound_usd, answer.bound_usd) if self.judged else answer.bound_usd
        if one.late_h <= 0 and (not self.judged or one.score_usd < self.judged[0].score_usd):
            return _Best(answer, [part], [one], bound_usd)
        return replace(self, bound_usd=bound_usd)


def _solve_best(request: PlanRequest, parts: Sequence[JobPart], settings: Settings) -> _Best:
    """The cheapest, as simulated, of plans that hold back all, some or none of the margin.

    A margin pays for the worst case in advance; where uninterrupted capacity is allowed, changing
    to it only when the worst comes is often cheaper and as sure. What that costs the model does not
    know, so that plans of one configuration are simulated besides the one that it prefers.
    """
    margins = _margins(settings.warm)
    best = held = _solve_surely(request, parts, settings)
    chosen: float | None = None
    if len(parts) == 1 and fallback_row(parts[0].table, parts[0].demand) is not None:
        for share in margins:
            part = replace(parts[0], table=with_margin(parts[0].table, share))
            bolder = _solve_bolder(request, part, share, settings)
            enough = held.answer.objective_usd * (1 - WORTHWHILE)
            if held.answer.solved and bolder.objective_usd >= enough:
                break
            if not bolder.solved:
                continue
            before, one = best, _judge(request, parts[0], bolder.segments[0])
            best = best.or_bolder(bolder, part, one)
            chosen = chosen if best.answer is before.answer else share
        if margins:
            before, best = best, _or_alone(request, parts[0], best, settings.gap)
            chosen = chosen if best.answer is before.answer else 0.0
    if settings.warm is not None:
        settings.warm.margin = chosen
    return best


def _or_alone(request: PlanRequest, part: JobPart, best: _Best, gap: float) -> _Best:
    """The best plan so far, or one of a single configuration that is cheaper as simulated."""
    if not best.judged or best.answer.fleet is not None:
        return best
    bold = replace(part, table=with_margin(part.table, 0.0))
    for segments in alone_plans(request, bold, best.judged[0].score_usd * (1 - WORTHWHILE)):
        if [s.row for s in segments] == [s.row for s in best.answer.segments[0]]:
            continue
        usd = sum(segment.score for segment in segments)
        bound_usd = min(best.bound_usd, usd)
        near = usd - bound_usd <= gap * max(abs(usd), 1e-9)
        answer = replace(
            best.answer,
            outcome=Outcome.OPTIMAL if near else Outcome.FEASIBLE,
            segments=(segments,),
            objective_usd=usd,
            bound_usd=bound_usd,
        )
        one = _judge(request, part, segments)
        if one.score_usd < best.judged[0].score_usd * (1 - WORTHWHILE):
            best = best.or_bolder(answer, bold, one)
    return best


def _margins(warm: Warm | None) -> tuple[float, ...]:
    """The share that was best the last time, if there was one; else all of them."""
    if warm is None or warm.gap is None:
        return MARGINS
    return () if warm.margin is None else (warm.margin,)


def _solve_bolder(request: PlanRequest, part: JobPart, share: float, settings: Settings) -> Answer:
    warm = None if settings.warm is None else settings.warm.of_margin(share)
    return _solve(request, [part], replace(settings, warm=warm))


def _solve_surely(request: PlanRequest, parts: Sequence[JobPart], settings: Settings) -> _Best:
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
            return _Best(answer, tried, judged, answer.bound_usd)
        tried = [
            replace(part, demand=replace(part.demand, due_h=part.demand.due_h - one.late_h * 1.1))
            for part, one in zip(tried, judged, strict=True)
        ]
        answer = _solve(request, tried, settings)
    return _Best(Answer(Outcome.INFEASIBLE), parts, [], 0.0)


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
    request: PlanRequest, parts: Sequence[JobPart], best: _Best
) -> tuple[Candidate, ...]:
    (part,), answer = parts, best.answer
    if not len(part.table):
        return ()
    segments = answer.segments[0] if answer.segments else ()
    forecast = best.judged[0].forecast if segments and best.judged else None
    made = Made(best.parts[0], segments, answer.objective_usd, forecast)
    return candidates_of(request, part, made)


def _constraints(
    request: PlanRequest, best: _Best, settings: Settings, *, explain: bool
) -> tuple[Constraint, ...]:
    """With shadow prices that take planning again where they are to be explained."""

    def again(relaxed: PlanRequest, part: JobPart) -> Answer:
        quick = replace(settings, time_limit_s=min(EXPLAIN_S, settings.time_limit_s), warm=None)
        return _solve(relaxed, [part], quick)

    few = explain and len(best.parts) <= EXPLAINED
    return constraints_of(request, best.parts, best.answer, again if few else None)


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
