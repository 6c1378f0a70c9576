"""The planner's entry point: a request becomes a plan with forecasts, candidates and reasons."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from costopt.domain.plan import Candidate, Constraint, Forecast, Plan, PlanStatus, Rejection
from costopt.optimize.candidates import ReferencePlan, judge_candidates
from costopt.optimize.chance_constraint import (
    ChosenPlan,
    drop_unservable_jobs,
    solve_chance_constrained,
)
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.demand import remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.infeasibility import find_binding_constraint
from costopt.optimize.pareto import restrict_offers
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import allocations_of
from costopt.optimize.sensitivity import binding_constraints
from costopt.optimize.simulation import done_forecast
from costopt.optimize.solve import SolveResult, SolverSettings
from costopt.optimize.solver import SolveStatus

Forecaster = Callable[[PlanRequest, Sequence[PlannedJob]], Mapping[str, Forecast]]
"""The forecasts, by job, of jobs as they will be run beside each other, where that is known."""

UNLIKELY = 0.005
"""Below this probability of being in time the solver's own reason is given."""

EXPLAIN_S, EXPLAINED = 0.5, 5
"""Seconds for each plan that a shadow price takes, and jobs up to which these are made."""


def plan(
    request: PlanRequest,
    *,
    time_limit_s: float = 10.0,
    gap: float = 0.005,
    solver: str | None = None,
    explain: bool = True,
    warm: WarmStart | None = None,
    forecaster: Forecaster | None = None,
) -> Plan:
    """Return the cheapest plan by the policy's objective that ends every job in time.

    Status OPTIMAL (within ``gap`` of the bound), FEASIBLE (time ran out first, or jobs compete and
    the bound is that of the jobs apart), INFEASIBLE (``binding`` says why) or EMPTY (no work
    remains). Where an INFEASIBLE plan has allocations, they are of the jobs that can be served.

    ``forecaster`` returns what will be run, where that is not this plan. ``warm`` makes a plan
    start from the last one and is changed by it. ``solver`` is "highs", "cbc" or None for the best
    installed; ``explain`` False leaves out the candidates, which are filled for a single job only.

    Raise InfeasibleError if a figure of a job is not finite, and SolverError if the solver fails.
    """
    started = time.perf_counter()
    settings = SolverSettings(time_limit_s, gap, solver, warm)
    parts, rejections = prepare(request)
    if not parts:
        return _empty(request)
    least = restrict_offers(request, parts) if len(parts) == 1 else request
    best = solve_chance_constrained(least, parts, settings)
    answer = best.answer
    candidates = _candidates(least, parts, best) if explain and len(parts) == 1 else ()
    made = Plan(
        status=_status(answer),
        made_at=request.now,
        allocations=tuple(
            allocation
            for part, segments in zip(parts, answer.segments, strict=False)
            for allocation in allocations_of(part, segments, request.now)
        ),
        forecasts=_forecasts(request, parts, best.forecasts()),
        candidates=candidates,
        rejections=request.rejections + rejections,
        unserved=answer.unserved,
        build_s=answer.build_s,
        solver=answer.solver,
        solve_s=time.perf_counter() - started,
    )
    if not answer.solved:
        binding = _binding(request, parts, rejections, answer, settings)
        made = replace(made, binding=binding, constraints=_held_limits(request, best))
    else:
        objective, bound = answer.objective_usd, answer.bound_usd
        made = replace(
            made,
            constraints=_constraints(least, best, settings, explain=explain),
            objective_usd=objective,
            bound_usd=bound,
            gap=max(0.0, objective - bound) / max(abs(objective), 1e-9),
        )
    if forecaster is not None and not answer.solved and len(parts) == 1:
        return _without_schedule(made, request, parts[0], forecaster)
    if forecaster is not None:
        made = _run_instead(made, request, parts, forecaster)
    return _or_too_unsure(made, request.policy.risk.on_time)


def prepare(request: PlanRequest) -> tuple[list[PlannedJob], tuple[Rejection, ...]]:
    """Return every unfinished job with its table of configurations, and the rejected offers.

    Raise InfeasibleError if a figure of a job is not finite.
    """
    enumeration = TableEnumerator(request)
    parts: list[PlannedJob] = []
    rejections: dict[Rejection, None] = {}
    for view in request.jobs:
        demand = remaining_demand(view, request.now, request.policy.risk.reserve_s)
        if demand is not None:
            table, refused = enumeration.table(demand)
            parts.append(PlannedJob(demand, table, []))
            rejections |= dict.fromkeys(refused)
    return parts, tuple(rejections)


def _binding(
    request: PlanRequest,
    parts: Sequence[PlannedJob],
    rejections: Sequence[Rejection],
    answer: SolveResult,
    settings: SolverSettings,
) -> str:
    if answer.outcome is SolveStatus.UNKNOWN:
        return f"time limit: no plan was found within {settings.time_limit_s:g} s"

    def quick() -> SolverSettings:
        return SolverSettings(min(2.0, settings.time_limit_s), 0.05, settings.solver)

    def feasible(relaxed: PlanRequest) -> bool:
        return drop_unservable_jobs(relaxed, prepare(relaxed)[0], quick()).solved

    def sure(relaxed: PlanRequest) -> bool:
        return solve_chance_constrained(relaxed, prepare(relaxed)[0], quick()).answer.solved

    return find_binding_constraint(
        request, parts, (*request.rejections, *rejections), feasible, sure
    )


def _forecasts(
    request: PlanRequest, parts: Sequence[PlannedJob], planned: Mapping[str, Forecast]
) -> tuple[tuple[str, Forecast], ...]:
    """Of every planned job, and of every one that has nothing left to do."""
    unfinished = {part.demand.job.name for part in parts}
    done = done_forecast(request.now)
    return tuple(
        (view.job.name, planned.get(view.job.name, done))
        for view in request.jobs
        if view.job.name in planned or view.job.name not in unfinished
    )


def _run_instead(
    made: Plan, request: PlanRequest, parts: Sequence[PlannedJob], forecaster: Forecaster
) -> Plan:
    """The plan with the forecasts of what runs instead of it, where that is known."""
    planned = dict(made.forecasts)
    instead = forecaster(request, [part for part in parts if part.demand.job.name in planned])
    return replace(
        made,
        forecasts=tuple((name, instead.get(name, own)) for name, own in made.forecasts),
        proposals=tuple((name, planned[name]) for name in instead),
    )


def _without_schedule(
    made: Plan, request: PlanRequest, part: PlannedJob, forecaster: Forecaster
) -> Plan:
    """A job for which no schedule is sure enough may be in time as it will be run."""
    forecast = forecaster(request, [part]).get(part.demand.job.name)
    if forecast is None or forecast.on_time.value < UNLIKELY:
        return made
    asked = request.policy.risk.on_time
    if forecast.within_budget is not None and not forecast.within_budget.is_at_least(asked):
        return made
    feasible = replace(
        made,
        status=PlanStatus.FEASIBLE,
        binding=None,
        forecasts=((part.demand.job.name, forecast),),
    )
    return _or_too_unsure(feasible, asked)


def _or_too_unsure(made: Plan, asked: float) -> Plan:
    """The plan, INFEASIBLE where a job is on time less often than asked."""
    unsure = [(name, own) for name, own in made.forecasts if not own.on_time.is_at_least(asked)]
    if not unsure or made.status not in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE):
        return made
    name, forecast = unsure[0]
    budget = forecast.within_budget
    if budget is not None and not budget.is_at_least(asked):
        what, share = f"budget: {name} is done within it", budget
    else:
        what, share = f"risk: {name} is on time", forecast.on_time
    binding = f"{what} in {share.value:.0%} of {share.source}; the policy asks for {asked:.1%}"
    unserved = tuple(dict.fromkeys((*made.unserved, *(name for name, _ in unsure))))
    return replace(made, status=PlanStatus.INFEASIBLE, binding=binding, unserved=unserved)


def _candidates(
    request: PlanRequest, parts: Sequence[PlannedJob], best: ChosenPlan
) -> tuple[Candidate, ...]:
    (part,), answer = parts, best.answer
    if not len(part.table):
        return ()
    segments = answer.segments[0] if answer.segments else ()
    forecast = best.judged[0].forecast if segments and best.judged else None
    made = ReferencePlan(best.parts[0], segments, answer.objective_usd, forecast)
    return judge_candidates(request, part, made)


def _constraints(
    request: PlanRequest, best: ChosenPlan, settings: SolverSettings, *, explain: bool
) -> tuple[Constraint, ...]:
    """With shadow prices that take planning again where they are to be explained."""

    def again(relaxed: PlanRequest, part: PlannedJob) -> SolveResult:
        limit_s = min(EXPLAIN_S, settings.time_limit_s)
        quick = SolverSettings(limit_s, settings.gap, settings.solver)
        return drop_unservable_jobs(relaxed, [part], quick)

    few = explain and len(best.parts) <= EXPLAINED
    return binding_constraints(request, best.parts, best.answer, again if few else None)


def _held_limits(request: PlanRequest, best: ChosenPlan) -> tuple[Constraint, ...]:
    """What the jobs that can be served hold of the limits; no price is known beside the others."""
    pairs = list(zip(best.parts, best.answer.segments, strict=False))
    able = [(part, own) for part, own in pairs if len(part.table) and part.demand.hours_left > 0]
    answer = replace(best.answer, segments=tuple(own for _, own in able), fleet=None)
    return binding_constraints(request, [part for part, _ in able], answer) if able else ()


def _status(answer: SolveResult) -> PlanStatus:
    if answer.outcome is SolveStatus.OPTIMAL:
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
