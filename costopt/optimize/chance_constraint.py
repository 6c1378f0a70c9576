"""The cheapest plan that meets the policy's chance constraint, verified by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costopt.domain.estimate import Estimate
from costopt.domain.job import Job
from costopt.domain.plan import Forecast
from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.fallback import choose_fallback_row
from costopt.optimize.lexicographic import (
    Figures,
    JobsPlan,
    Segments,
    improve_in_order,
    planned_figures,
)
from costopt.optimize.limits import max_usd_of
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.random_draws import RunSamples
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment
from costopt.optimize.simulated_bound import simulated_bound
from costopt.optimize.simulation import forecast_segments, with_time_margin
from costopt.optimize.solve import (
    SolveResult,
    SolverSettings,
    single_configuration_plans,
    solve_jobs,
)
from costopt.optimize.solver import SolveStatus

TIGHTENINGS = 3
"""How often due time and budget are drawn in where the plan does not keep them as simulated."""

TIGHTER = 1.1
"""They are drawn in by what the plan exceeds them, times this."""

MARGIN_SHARES = (0.0, 0.33, 0.67)
"""Shares of the margin that are tried where there is a fallback, the boldest first."""

MIN_IMPROVEMENT = 1e-3
"""A bolder plan that saves less than this share in the model is not looked at further."""

NEXT_SHARE = 0.5
"""Of the remaining time: what a plan of one job may take where others are compared with it."""


def drop_unservable_jobs(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> SolveResult:
    """Return a plan of the jobs that can run at all; the others are named in ``unserved``.

    With any job dropped its outcome is INFEASIBLE.
    """
    able = [p for p in parts if len(p.table) and p.demand.hours_left > 0]
    if not able:
        return SolveResult(SolveStatus.INFEASIBLE)
    answer = solve_jobs(request, able, settings)
    if len(able) == len(parts):
        return answer
    planned = iter(answer.segments or ((),) * len(able))
    chosen = {id(p) for p in able}
    unable = tuple(p.demand.job.name for p in parts if id(p) not in chosen)
    return replace(
        answer,
        outcome=SolveStatus.INFEASIBLE,
        segments=tuple(next(planned) if id(p) in chosen else () for p in parts),
        unserved=(*answer.unserved, *unable),
    )


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A job's plan as simulated: hours too late at the asked probability, 0 where sure enough.

    ``over_usd`` and ``over_kwh`` are what it exceeds the job's budgets by at that probability, 0
    where it does not; ``figures`` are means over the samples where there is a fallback, which the
    model does not know, else the model's own but for the finish.
    """

    late_h: float
    figures: Figures
    forecast: Forecast
    over_usd: float = 0.0
    over_kwh: float = 0.0

    @property
    def may_be_taken(self) -> bool:
        """Return whether it meets the chance constraint and is expected to respect all budgets."""
        return self.late_h <= 0 and self.over_usd <= 0 and self.over_kwh <= 0

    @property
    def score_usd(self) -> float:
        """Return the policy's objective in dollars."""
        return self.figures.objective_usd


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """The chosen plan, the jobs for which it was solved, and the simulated plan of each job served.

    ``bound_usd`` holds at every margin that was tried.
    """

    answer: SolveResult
    parts: Sequence[PlannedJob]
    judged: Sequence[SimulatedPlan]
    bound_usd: float

    def forecasts(self) -> dict[str, Forecast]:
        """Return the forecasts of the jobs that are served, by name."""
        served = [p for p, own in zip(self.parts, self.answer.segments, strict=False) if own]
        pairs = zip(served, self.judged, strict=False)
        return {part.demand.job.name: one.forecast for part, one in pairs}

    def or_less_reserved(
        self, answer: SolveResult, part: PlannedJob, one: SimulatedPlan
    ) -> ChosenPlan:
        """This, or a plan of the only job where it may be taken and is cheaper as simulated."""
        bound_usd = min(self.bound_usd, answer.bound_usd) if self.judged else answer.bound_usd
        if one.may_be_taken and (not self.judged or one.score_usd < self.judged[0].score_usd):
            return ChosenPlan(answer, [part], [one], bound_usd)
        return replace(self, bound_usd=bound_usd)


def solve_chance_constrained(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> ChosenPlan:
    """Return the best plan by the objective, then by its further aims within the tolerance."""
    further = bool(request.policy.objective.then)
    first = settings.within(NEXT_SHARE) if further else settings
    best = _solve_cheapest(request, parts, first)
    if not best.answer.solved and len(parts) == 1:
        best = _without_budget(request, parts[0], best, first)
    return _improved(request, parts, best, settings) if further else best


def _without_budget(
    request: PlanRequest, part: PlannedJob, best: ChosenPlan, settings: SolverSettings
) -> ChosenPlan:
    """A plan that exceeds the job's budget in the model, and keeps it as simulated.

    The model does not know of changes to the fallback, which may draw less.
    """
    job = part.demand.job
    unbounded = max_usd_of(request, job) is None and job.budget.max_kwh is None
    if unbounded or choose_fallback_row(part.table, part.demand) is None:
        return best
    budget = replace(job.budget, max_usd=None, max_kwh=None)
    free = replace(part, demand=replace(part.demand, job=replace(job, budget=budget)))
    for share in (1.0, 0.0):
        if settings.left_s() <= 0:
            break
        tried = replace(free, table=with_time_margin(part.table, share))
        answer = drop_unservable_jobs(request, [tried], settings.within(NEXT_SHARE))
        # Its prices are without the budget.
        answer = replace(answer, fleet=None)
        if answer.solved:
            one = simulate_plan(request, part, answer.segments[0])
            best = best.or_less_reserved(answer, replace(tried, demand=part.demand), one)
    return best


def _improved(
    request: PlanRequest, parts: Sequence[PlannedJob], best: ChosenPlan, settings: SolverSettings
) -> ChosenPlan:
    """The best plan after the objective's further aims.

    A single job's plans are compared as simulated. They may hold back the margin of the best plan,
    or none of it where there is a fallback.
    """
    if not best.answer.solved or not best.judged:
        return best
    single, objective = len(parts) == 1, request.policy.objective

    def simulated(segments: Segments) -> Figures | None:
        one = simulate_plan(request, parts[0], segments[0])
        return one.figures if one.may_be_taken else None

    def planned(segments: Segments) -> Figures:
        return planned_figures(segments, objective)

    def singles(aim: ObjectiveTerm, below_usd: float) -> Iterator[Segments]:
        return (
            (own,) for own in single_configuration_plans(request, variants[-1][0], below_usd, aim)
        )

    variants = [best.parts]
    if single and choose_fallback_row(parts[0].table, parts[0].demand) is not None:
        bold = with_time_margin(parts[0].table, 0.0)
        if not np.array_equal(bold.stretch, best.parts[0].table.stretch):
            variants.append([replace(parts[0], table=bold)])
    constant = single and best.answer.fleet is None
    found = improve_in_order(
        request,
        JobsPlan(best.parts, best.answer.segments),
        variants,
        simulated if single else planned,
        settings,
        singles if constant else None,
    )
    objective_usd = sum(segment.score for own in found.segments for segment in own)
    bound_usd = min(best.bound_usd, objective_usd)
    answer = replace(
        best.answer, segments=found.segments, objective_usd=objective_usd, bound_usd=bound_usd
    )
    judged = [simulate_plan(request, *each) for each in zip(parts, found.segments, strict=True)]
    return ChosenPlan(answer, found.parts, judged, bound_usd)


def _solve_cheapest(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> ChosenPlan:
    """The cheapest, as simulated, of plans that hold back all, some or none of the margin.

    A margin pays for the worst case in advance; where uninterrupted capacity is allowed, changing
    to it only when the worst comes is often cheaper and as sure. What that costs the model does not
    know, so that plans of one configuration are simulated besides the one that it prefers.
    """
    if len(parts) > 1 and settings.warm is None:
        return _solve_together(request, parts, settings)
    margins = _margins(settings.warm)
    best = held = _solve_surely(request, parts, settings)
    chosen: float | None = None
    if len(parts) == 1 and choose_fallback_row(parts[0].table, parts[0].demand) is not None:
        for number, share in enumerate(margins, start=1):
            if settings.left_s() <= 0:
                break
            # Its due time is the job's own: what is late there is left to the fallback.
            demand = replace(parts[0].demand, job=held.parts[0].demand.job)
            part = replace(parts[0], demand=demand, table=with_time_margin(parts[0].table, share))
            time_share = NEXT_SHARE if number < len(margins) else 1.0
            bolder = _solve_bolder(request, part, share, settings.within(time_share))
            enough = held.answer.objective_usd * (1 - MIN_IMPROVEMENT)
            if held.answer.solved and bolder.objective_usd >= enough:
                break
            if not bolder.solved:
                continue
            before, one = best, simulate_plan(request, parts[0], bolder.segments[0])
            best = best.or_less_reserved(bolder, part, one)
            chosen = chosen if best.answer is before.answer else share
        if margins:
            before, best = best, _or_alone(request, parts[0], best, settings.gap)
            chosen = chosen if best.answer is before.answer else 0.0
    if settings.warm is not None:
        settings.warm.margin = chosen
    return best


def _solve_together(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> ChosenPlan:
    """Several jobs, each with the margin that its plan alone holds back.

    A job that together with the others is less sure than it must be gets the whole margin.
    """
    alone, own = settings.within(NEXT_SHARE), list(parts)
    for number, part in enumerate(parts):
        if alone.left_s() > 0 and len(part.table) and part.demand.hours_left > 0:
            share = 1 / (len(parts) - number)
            best = _solve_cheapest(request, [part], alone.within(share))
            own[number] = best.parts[0] if best.judged else part
    answer = drop_unservable_jobs(request, own, settings.within(NEXT_SHARE))
    judged = _judge_all(request, parts, answer)
    unsure = [name for name, one in judged.items() if one.late_h > 0]
    if unsure and settings.left_s() > 0:
        pairs = zip(own, parts, strict=True)
        own = [whole if whole.demand.job.name in unsure else bold for bold, whole in pairs]
        answer = drop_unservable_jobs(request, own, settings.within(1.0))
        judged = _judge_all(request, parts, answer)
    return ChosenPlan(answer, own, list(judged.values()), answer.bound_usd)


def _judge_all(
    request: PlanRequest, parts: Sequence[PlannedJob], answer: SolveResult
) -> dict[str, SimulatedPlan]:
    """The simulated plan of each job that is served, by name and in order."""
    return {
        part.demand.job.name: simulate_plan(request, part, segments)
        for part, segments in zip(parts, answer.segments, strict=False)
        if segments
    }


def _or_alone(request: PlanRequest, part: PlannedJob, best: ChosenPlan, gap: float) -> ChosenPlan:
    """The best plan so far, or one of a single configuration that is cheaper as simulated."""
    if not best.judged or best.answer.fleet is not None:
        return best
    bold = replace(part, table=with_time_margin(part.table, 0.0))
    for segments in single_configuration_plans(
        request, bold, best.judged[0].score_usd * (1 - MIN_IMPROVEMENT)
    ):
        if [s.row for s in segments] == [s.row for s in best.answer.segments[0]]:
            continue
        one = simulate_plan(request, part, segments)
        if one.score_usd >= best.judged[0].score_usd * (1 - MIN_IMPROVEMENT):
            continue
        bound_usd = min(best.bound_usd, one.score_usd)
        if len(part.demand.stages) == 1:
            objective = request.policy.objective
            bound_usd = max(bound_usd, simulated_bound(part, objective, one.score_usd))
        near = one.score_usd - bound_usd <= gap * max(abs(one.score_usd), 1e-9)
        answer = replace(
            best.answer,
            outcome=SolveStatus.OPTIMAL if near else SolveStatus.FEASIBLE,
            segments=(segments,),
            objective_usd=one.score_usd,
            bound_usd=bound_usd,
        )
        best = best.or_less_reserved(answer, bold, one)
    return best


def _margins(warm: WarmStart | None) -> tuple[float, ...]:
    """The share that was best the last time, if there was one; else all of them."""
    if warm is None or warm.gap is None:
        return MARGIN_SHARES
    return () if warm.margin is None else (warm.margin,)


def _solve_bolder(
    request: PlanRequest, part: PlannedJob, share: float, settings: SolverSettings
) -> SolveResult:
    warm = None if settings.warm is None else settings.warm.of_margin(share)
    return drop_unservable_jobs(request, [part], replace(settings, warm=warm))


def _solve_surely(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> ChosenPlan:
    """Solve, simulate, and draw the due time and the budget in until the plan keeps them.

    The margins of the model treat each configuration alone; a mix of them can be less sure. Nor
    does the model know what the fallback costs, and draws.
    """
    time_share = NEXT_SHARE if len(parts) == 1 else 1.0
    answer = drop_unservable_jobs(request, parts, settings.within(time_share))
    tried = list(parts)
    for _ in range(TIGHTENINGS):
        judged = [
            simulate_plan(request, part, segments)
            for part, segments in zip(parts, answer.segments, strict=False)
            if segments
        ]
        if not answer.solved or len(parts) > 1 or judged[0].may_be_taken:
            return ChosenPlan(answer, tried, judged, answer.bound_usd)
        if settings.left_s() <= 0:
            return ChosenPlan(SolveResult(SolveStatus.UNKNOWN), tried, [], 0.0)
        tried = [_tightened(request, tried[0], answer.segments[0], judged[0])]
        answer = drop_unservable_jobs(request, tried, settings.within(time_share))
    return ChosenPlan(SolveResult(SolveStatus.INFEASIBLE), tried, [], 0.0)


def _tightened(
    request: PlanRequest, part: PlannedJob, made: Sequence[Segment], one: SimulatedPlan
) -> PlannedJob:
    """The job due earlier, and with less of a budget, than the plan has in the model."""
    demand, budget = part.demand, part.demand.job.budget
    max_usd, max_kwh = max_usd_of(request, demand.job), budget.max_kwh
    if max_usd is not None:
        budget = replace(budget, max_usd=_below(max_usd, sum(s.usd for s in made), one.over_usd))
    if max_kwh is not None:
        budget = replace(budget, max_kwh=_below(max_kwh, sum(s.kwh for s in made), one.over_kwh))
    due_h = _below(demand.due_h, max(s.end_h for s in made), one.late_h)
    job = replace(demand.job, budget=budget)
    return replace(part, demand=replace(demand, job=job, due_h=due_h))


def _below(most: float, planned: float, over: float) -> float:
    return max(0.0, min(most, planned) - over * TIGHTER) if over > 0 else most


def simulate_plan(
    request: PlanRequest, part: PlannedJob, segments: Sequence[Segment]
) -> SimulatedPlan:
    """Return a job's plan as simulated."""
    asked = request.policy.risk.on_time
    forecast, samples = forecast_segments(part.table, segments, part.demand, request.now)
    objective = request.policy.objective
    figures = _simulated_figures(samples, objective)
    if choose_fallback_row(part.table, part.demand) is None:
        planned = planned_figures((tuple(segments),), objective)
        figures = replace(planned, finish_h=figures.finish_h)
    job = part.demand.job
    over_usd = _over(_quantile(samples.usd, asked), max_usd_of(request, job))
    over_kwh = _over(_quantile(samples.kwh, asked), job.budget.max_kwh)
    late_h = _late_h(request, part, samples, asked)
    return SimulatedPlan(late_h, figures, forecast, over_usd, over_kwh)


def _quantile(figure: Array, asked: float) -> float | None:
    """What the asked share of the runs does not exceed; None where it is unknown."""
    runs = figure.shape[1]
    value = float(np.quantile(figure[0], min(asked + 1 / runs, 1.0), method="higher"))
    return value if math.isfinite(value) else None


def _simulated_figures(samples: RunSamples, objective: Objective) -> Figures:
    usd, kwh, gco2e = (float(each.mean()) for each in (samples.usd, samples.kwh, samples.gco2e))
    return Figures(
        objective.score_usd(usd, kwh, gco2e), usd, kwh, gco2e, float(samples.finish_h.mean())
    )


def over_budget(request: PlanRequest, job: Job, forecast: Forecast) -> tuple[float, float]:
    """Return the dollars and the kWh by which a job's forecast exceeds its budgets, else 0."""
    return (
        _over(forecast.usd_p50, max_usd_of(request, job)),
        _over(forecast.kwh, job.budget.max_kwh),
    )


def _over(value: float | None, most: float | None) -> float:
    """What is unknown exceeds any budget."""
    if most is None:
        return 0.0
    return math.inf if value is None else max(0.0, value - most)


def _late_h(request: PlanRequest, part: PlannedJob, samples: RunSamples, asked: float) -> float:
    deadline_h = (part.demand.job.until_at - request.now).total_seconds() / 3600
    ordered = np.sort(samples.finish_h[0])
    runs = len(ordered)
    in_time = int((ordered <= deadline_h + 1e-9).sum())
    if Estimate.of_share(in_time, runs, "").is_at_least(asked):
        return 0.0
    return max(1e-6, float(ordered[min(int(asked * runs), runs - 1)]) - deadline_h)
