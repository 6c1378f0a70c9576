"""Solving a request: each job alone, and together only where they compete or prices vary.

A job may also run on one configuration from beginning to end: such plans become segments here like
those of any other plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from costopt.domain.errors import SolverError
from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.colgen.polish import polish
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.colgen.solve import solve_fleet
from costopt.optimize.colgen.warm_start import FleetPlan, WarmStart
from costopt.optimize.limits import shared_limits, total_limits
from costopt.optimize.model import PlanModel
from costopt.optimize.pareto import objective_usd, part_with_objective
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import (
    StageConfiguration,
    can_run_stage,
    single_held_h,
    single_score,
    stage_configurations,
    usable_h,
)
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import (
    Segment,
    broken_limits,
    pause_of,
    schedule_uses,
    segments_of,
    verify,
    with_hourly_carbon,
)
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import AVAILABILITY_HORIZON_H, event_slots
from costopt.optimize.solver import SolveStatus

ALONE_GAP = 1e-6
"""A job alone is a small program: solved to optimality, it has no needless change of pools."""

SMALL_JOB_COUNT = 5
"""Jobs up to which what column generation leaves open is solved as a mixed-integer program."""

MIN_SOLVE_S = 0.1
"""The least time of a solve: the first one has to come to a plan however short the limit."""

POLISH_SHARE = 0.4
"""Of the time: what that program may take."""


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """How to solve, within ``time_limit_s`` of ``began_s`` (of the clock ``time.perf_counter``).

    ``warm`` holds the warm start from the last plan.
    """

    time_limit_s: float
    gap: float
    solver: str | None = None
    warm: WarmStart | None = None
    began_s: float = field(default_factory=time.perf_counter)

    def left_s(self) -> float:
        """Return the remaining seconds, never below 0."""
        return max(0.0, self.began_s + self.time_limit_s - time.perf_counter())

    def within(self, share: float) -> SolverSettings:
        """Return the settings of a solve that begins now and takes a share of the remaining time.

        It never gets less than ``MIN_SOLVE_S``: a caller that has another plan checks ``left_s``
        first.
        """
        limit_s = max(MIN_SOLVE_S, share * self.left_s())
        return replace(self, time_limit_s=limit_s, began_s=time.perf_counter())


@dataclass(frozen=True, slots=True)
class SolveResult:
    """The result of a solve: the segments of each part, or none where ``outcome`` says why.

    A part that is not served has no segments, and its job's name is in ``unserved``; the others are
    planned all the same. ``fleet`` is set where the jobs were planned over slots.
    """

    outcome: SolveStatus
    segments: tuple[tuple[Segment, ...], ...] = ()
    objective_usd: float = 0.0
    bound_usd: float = 0.0
    solver: str = ""
    unserved: tuple[str, ...] = ()
    build_s: float = 0.0
    fleet: FleetPlan | None = None

    @property
    def solved(self) -> bool:
        """Return whether there is a plan of every job."""
        return self.outcome in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


def solve_jobs(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> SolveResult:
    """Return the cheapest plan of all jobs; every one is checked outside the solver.

    Where nothing changes over time jobs are solved apart, which is a relaxation; if the plans
    together respect every shared limit, and none pauses in a phase that may not, they are optimal
    together. Else they are planned over slots.

    Raise SolverError if the solver fails or the plan fails a check.
    """
    if not is_time_varying(request, parts):
        apart = _together([_solve_alone(request, part, settings) for part in parts])
        if not apart.solved and len(parts) == 1:
            return apart
        if apart.solved and not _pause(parts, apart) and not _compete(request, parts, apart):
            return _within(apart, settings.gap)
    return _solve_over_slots(request, parts, settings.within(1.0))


def is_time_varying(request: PlanRequest, parts: Sequence[PlannedJob]) -> bool:
    """Return whether a plan over slots is needed: prices or intensities that count change."""
    pools = {offer.pool for part in parts for offer in part.table.offers}
    if not pools.isdisjoint(request.price_forecasts):
        return True
    regions = {f"{pool.provider}/{pool.region}" for pool in pools}
    weighed = (request.policy.objective, *(each.weights for each in request.ceilings))
    weighs = any(weights.usd_per_tonne_co2e > 0 for weights in weighed)
    return weighs and not regions.isdisjoint(request.carbon_forecasts)


def _pause(parts: Sequence[PlannedJob], apart: SolveResult) -> bool:
    """Whether a job's own plan waits for capacity in a phase that may not pause."""
    return any(
        pause_of(part, segments) is not None
        for part, segments in zip(parts, apart.segments, strict=True)
    )


def _compete(request: PlanRequest, parts: Sequence[PlannedJob], apart: SolveResult) -> bool:
    """Whether the jobs' own plans break a shared limit together."""
    if len(parts) == 1:
        return False
    planned = list(zip(parts, apart.segments, strict=True))
    if broken_limits(request, shared_limits(request), planned):
        return True
    for total in total_limits(request):
        spent = sum(
            segment.usd
            for part, segments in planned
            if total.counts(part.demand.job)
            for segment in segments
        )
        if spent > total.max_usd:
            return True
    everything = [segment for segments in apart.segments for segment in segments]
    return any(
        objective_usd(everything, ceiling.weights) > ceiling.most for ceiling in request.ceilings
    )


def _solve_alone(request: PlanRequest, part: PlannedJob, settings: SolverSettings) -> SolveResult:
    capped = [part.table.scored_by(each.weights).score_per_hour for each in request.ceilings]
    part = replace(part, options=stage_configurations(part.table, part.demand, capped))
    scarce = not bool(part.table.now.all())
    table = part.table
    dates = np.unique(np.concatenate((table.from_h, table.until_h)))
    slots = event_slots(
        [part.demand], scarce_now=scarce, dates_h=dates[np.isfinite(dates)].tolist()
    )
    if not slots or not part.options:
        return SolveResult(SolveStatus.INFEASIBLE)
    model = PlanModel(request, [part], slots)
    solution = model.solve(
        time_limit_s=max(MIN_SOLVE_S, settings.left_s()), gap=ALONE_GAP, solver=settings.solver
    )
    if solution.outcome not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return SolveResult(solution.outcome, solver=solution.solver)
    tariff = SlotCosts.of(ForecastTable.of(request, slots), part.table, request.policy.objective)
    (uses,) = model.uses(solution)
    segments = schedule_uses(part, tariff, uses, slots, exclusive=False)
    segments = with_hourly_carbon(request, part, segments)
    verify(part, segments)
    unit = model.unit_usd
    objective = sum(segment.score for segment in segments)
    if objective - solution.objective * unit > 1e-3 * max(abs(objective), 1e-9):
        raise SolverError("the plan's cost outside the solver differs from the solver's")
    return SolveResult(
        solution.outcome,
        (segments,),
        objective,
        min(solution.bound * unit, objective),
        solution.solver,
        build_s=solution.build_s,
    )


def _together(answers: Sequence[SolveResult]) -> SolveResult:
    for outcome in (SolveStatus.INFEASIBLE, SolveStatus.UNKNOWN):
        if any(answer.outcome is outcome for answer in answers):
            return SolveResult(outcome)
    optimal = all(answer.outcome is SolveStatus.OPTIMAL for answer in answers)
    return SolveResult(
        SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE,
        tuple(segments for answer in answers for segments in answer.segments),
        sum(answer.objective_usd for answer in answers),
        sum(answer.bound_usd for answer in answers),
        answers[0].solver if answers else "",
        build_s=sum(answer.build_s for answer in answers),
    )


def _within(answer: SolveResult, gap: float) -> SolveResult:
    """Report OPTIMAL only within the requested gap, whatever gap the solver was given."""
    off = (answer.objective_usd - answer.bound_usd) / max(abs(answer.objective_usd), 1e-9)
    if answer.solved:
        return replace(answer, outcome=SolveStatus.OPTIMAL if off <= gap else SolveStatus.FEASIBLE)
    return answer


def _solve_over_slots(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> SolveResult:
    """Column generation, then the mixed-integer program of what it has left open."""
    limit_s = settings.time_limit_s
    few = len(parts) <= SMALL_JOB_COUNT
    plan = solve_fleet(
        request,
        parts,
        time_limit_s=limit_s * (1 - POLISH_SHARE) if few else limit_s,
        gap=settings.gap / 4 if few else settings.gap,
        solver=settings.solver,
        warm=settings.warm,
    )
    segments = [
        () if schedule is None else _checked(request, part, plan, schedule)
        for part, schedule in zip(parts, plan.schedules, strict=True)
    ]
    if few and (plan.gap > settings.gap / 2 or not all(segments)):
        stop_at = settings.began_s + limit_s
        polished = polish(request, parts, plan, stop_at, settings.gap / 4, settings.solver)
        if polished is not None and (not all(segments) or _total(polished) < _total(segments)):
            segments = polished
    unserved = tuple(
        part.demand.job.name for part, own in zip(parts, segments, strict=True) if not own
    )
    _refuse_broken(request, parts, segments)
    objective = _total(segments)
    answer = SolveResult(
        SolveStatus.FEASIBLE if not unserved else SolveStatus.INFEASIBLE,
        tuple(segments),
        objective,
        min(plan.bound_usd, objective),
        "column generation",
        unserved=unserved,
        build_s=plan.build_s,
        fleet=plan,
    )
    return _within(answer, settings.gap)


def _total(segments: Sequence[Sequence[Segment]]) -> float:
    return sum(segment.score for own in segments for segment in own)


def _checked(
    request: PlanRequest, part: PlannedJob, plan: FleetPlan, schedule: JobSchedule
) -> tuple[Segment, ...]:
    tariff = SlotCosts.of(plan.outlook, part.table, request.policy.objective)
    segments = segments_of(part, tariff, schedule, plan.slots)
    verify(part, segments)
    return segments


def _refuse_broken(
    request: PlanRequest, parts: Sequence[PlannedJob], segments: Sequence[tuple[Segment, ...]]
) -> None:
    """Raise SolverError where the plan breaks a limit that jobs share: it is never shown."""
    planned = list(zip(parts, segments, strict=True))
    broken = broken_limits(request, shared_limits(request), planned)
    if broken:
        raise SolverError(f"the plan breaks {broken[0]}")


MAX_PLANS = 4
"""How many of the best plans of one configuration are simulated."""


def single_configuration_plans(
    request: PlanRequest, part: PlannedJob, below_usd: float, aim: ObjectiveTerm | None = None
) -> Iterator[tuple[Segment, ...]]:
    """Yield plans of one configuration whose objective is below ``below_usd``, the best first.

    The best has the least of the aim's figure, by default of the objective. All respect the job's
    time and budgets. They are for a job that does not share its limits, at constant prices, and are
    those of ``part``, whose margin decides on what fits.
    """
    table, demand = part.table, part.demand
    score = single_score(table, demand)
    figure = score if aim is None else _figure(part, aim)
    fits = (single_held_h(table, demand) <= usable_h(table, demand)) & (score < below_usd)
    for number, stage in enumerate(demand.stages):
        fits &= can_run_stage(table, stage, number)
    rows = np.flatnonzero(fits)
    for row in rows[np.argsort(figure[rows], kind="stable")][:MAX_PLANS].tolist():
        segments = with_hourly_carbon(request, part, single_configuration_segments(part, row))
        if _keeps_limits(request, part, segments):
            yield segments


def _figure(part: PlannedJob, aim: ObjectiveTerm) -> Array:
    """The aim's figure of the whole job on each row; NaN where its carbon is unknown."""
    if aim is ObjectiveTerm.FINISH:
        return single_held_h(part.table, part.demand)
    objective = Objective(
        usd=float(aim is ObjectiveTerm.USD), usd_per_kwh=float(aim is not ObjectiveTerm.USD)
    )
    figure = single_score(part_with_objective(part, objective).table, part.demand)
    return figure * part.table.gco2e_per_kwh if aim is ObjectiveTerm.CO2E else figure


def _keeps_limits(request: PlanRequest, part: PlannedJob, segments: tuple[Segment, ...]) -> bool:
    spent_usd = sum(segment.usd for segment in segments)
    for total in total_limits(request):
        if total.counts(part.demand.job) and spent_usd > total.max_usd:
            return False
    try:
        verify(part, segments)
    except SolverError:
        return False
    return True


def single_configuration_segments(part: PlannedJob, row: int) -> tuple[Segment, ...]:
    """Return every stage on the row, at the table's prices, from the earliest time it may begin.

    The row must be able to run every stage. Whether it ends in time is not checked.
    """
    table, demand = part.table, part.demand
    usable_now = bool(table.now[row] or table.running[row])
    begin_h = max(
        demand.release_h, 0.0 if usable_now else AVAILABILITY_HORIZON_H, float(table.from_h[row])
    )
    whole_h = float(table.start_h[row])
    start_h = min(demand.starting_h, whole_h) if table.running[row] else whole_h
    segments: list[Segment] = []
    for number, stage in enumerate(demand.stages):
        hours = stage.units / part.units_per_hour(StageConfiguration(number, row))
        share = start_h / max(whole_h, 1e-12)
        end_h = begin_h + start_h + hours * float(table.calendar[row])
        segments.append(
            Segment(
                stage=number,
                row=row,
                begin_h=begin_h,
                end_h=end_h,
                hours=hours,
                start_h=start_h,
                earliest_h=begin_h,
                usd=hours * float(table.usd_per_hour[row])
                + share * float(table.usd_per_start[row]),
                kwh=hours * float(table.kwh_per_hour[row])
                + share * float(table.kwh_per_start[row]),
                score=hours * float(table.score_per_hour[row])
                + share * float(table.start_score[row]),
                gco2e_per_kwh=float(table.gco2e_per_kwh[row]),
            )
        )
        begin_h, start_h = end_h, 0.0
    return tuple(segments)
