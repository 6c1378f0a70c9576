"""Solving a request: each job by itself, and together only where they compete or prices move."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from costopt.domain.errors import SolverError
from costopt.optimize.fleet.plan import FleetPlan
from costopt.optimize.fleet.schedule import JobSchedule
from costopt.optimize.fleet.solve import solve_fleet
from costopt.optimize.fleet.warm import WarmStart
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import (
    Segment,
    broken_limits,
    pause_of,
    schedule_uses,
    segments_of,
    verify,
)
from costopt.optimize.model import PlanModel
from costopt.optimize.polish import polish
from costopt.optimize.prune import stage_configurations
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import shared_limits, total_limits
from costopt.optimize.slots import event_slots
from costopt.optimize.solver import SolveStatus
from costopt.optimize.tariff import ForecastTable, SlotCosts

ALONE_GAP = 1e-6
"""A job by itself is a small program: solved to the end, it holds no needless change of pools."""

SMALL_JOB_COUNT = 5
"""Jobs up to which what column generation leaves open is solved as a mixed-integer program."""

MIN_SOLVE_S = 0.1
"""The least time of a solve: the first one has to come to a plan however short the limit."""

POLISH_SHARE = 0.4
"""Of the time: what that program may take."""


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """How to solve, within ``time_limit_s`` of ``began_s`` (of the clock ``time.perf_counter``).

    ``warm`` is what the last plan left.
    """

    time_limit_s: float
    gap: float
    solver: str | None = None
    warm: WarmStart | None = None
    began_s: float = field(default_factory=time.perf_counter)

    def left_s(self) -> float:
        """The remaining seconds; never below 0."""
        return max(0.0, self.began_s + self.time_limit_s - time.perf_counter())

    def within(self, share: float) -> SolverSettings:
        """These, for a solve that begins now and may take a share of the remaining time.

        Never less than ``MIN_SOLVE_S``: a caller that has another plan looks at ``left_s`` first.
        """
        limit_s = max(MIN_SOLVE_S, share * self.left_s())
        return replace(self, time_limit_s=limit_s, began_s=time.perf_counter())


@dataclass(frozen=True, slots=True)
class SolveResult:
    """What was found: the segments of each part, or none where ``outcome`` says why.

    A part that is not served has no segments and its job's name is in ``unserved``; the others are
    planned all the same. ``fleet`` is there where the jobs were planned over slots.
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
        """Whether there is a plan of every job."""
        return self.outcome in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


def solve_jobs(
    request: PlanRequest, parts: Sequence[PlannedJob], settings: SolverSettings
) -> SolveResult:
    """The cheapest plan of all jobs; every one is checked outside the solver.

    Where nothing changes over time jobs are solved apart, which is a relaxation; if the plans
    together keep every shared limit, and none pauses in a phase that may not, they are optimal
    together. Else they are planned over slots.
    Raises SolverError.
    """
    if not _moving(request, parts):
        apart = _together([_solve_alone(request, part, settings) for part in parts])
        if not apart.solved and len(parts) == 1:
            return apart
        if apart.solved and not _pause(parts, apart) and not _compete(request, parts, apart):
            return _within(apart, settings.gap)
    return _solve_over_slots(request, parts, settings.within(1.0))


def _moving(request: PlanRequest, parts: Sequence[PlannedJob]) -> bool:
    """Whether a plan over slots is needed, since prices or carbon intensities change."""
    pools = {offer.pool for part in parts for offer in part.table.offers}
    if not pools.isdisjoint(request.price_forecasts):
        return True
    regions = {f"{pool.provider}/{pool.region}" for pool in pools}
    weighs = request.policy.objective.usd_per_tonne_co2e > 0
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
        if spent > total.most_usd:
            return True
    return False


def _solve_alone(request: PlanRequest, part: PlannedJob, settings: SolverSettings) -> SolveResult:
    part = replace(part, options=stage_configurations(part.table, part.demand))
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
    """OPTIMAL is within the gap that was asked, whatever the solver was told."""
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
