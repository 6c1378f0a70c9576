"""What-if: plans under other policies, deadlines and markets; dollars against kWh and finish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from costopt.domain.errors import InfeasibleError
from costopt.domain.market import CapacityType
from costopt.domain.plan import Forecast, Plan, PlanStatus
from costopt.domain.policy import Policy
from costopt.optimize.frontier_point import FrontierPoint, non_dominated, select_spread
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.planner import plan, prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.sweep import FrontierSweep

__all__ = ["FrontierPoint", "Scenario", "frontier", "scenarios"]


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
    request: PlanRequest, *, points: int = 24, time_limit_s: float = 10.0
) -> tuple[FrontierPoint, ...]:
    """Plans of one job that no other found is better than in dollars, kWh and finish at once.

    By ascending dollars, at most ``points``; empty where there is no plan. Fewer come back where
    the figures agree. Raises as ``plan`` does.
    """
    _one_job(request)
    parts, _ = prepare(request)
    if points < 1 or not parts or not len(parts[0].table) or parts[0].demand.hours_left <= 0:
        return ()
    swept = _by_power(parts[0])
    found = [
        point
        for part in swept
        for point in FrontierSweep(request, part, points, time_limit_s / len(swept)).points()
    ]
    return select_spread(non_dominated(found), points)


def _by_power(part: PlannedJob) -> tuple[PlannedJob, ...]:
    """The part on the configurations of known power, and the whole where there are others."""
    powered = np.isfinite(part.table.power_error)
    if powered.all():
        return (part,)
    return (replace(part, table=part.table.take(powered)), part) if powered.any() else (part,)


def _one_job(request: PlanRequest) -> None:
    if len(request.jobs) != 1:
        raise InfeasibleError(
            f"a what-if needs one job, this request has {len(request.jobs)}",
            hint="ask for one job at a time",
            code="many_jobs",
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
