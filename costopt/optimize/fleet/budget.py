"""Limits on what whole schedules come to: of a job, of a tenant, of the account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.optimize.fleet.schedule import JobSchedule
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import total_limits

MIN_AMOUNT = 1e-9
"""A budget of nothing is held as this, so that shares of it are numbers."""


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """``jobs`` together spend at most ``most`` dollars, or kWh where ``in_kwh``."""

    name: str
    most: float
    jobs: frozenset[int]
    in_kwh: bool = False

    def spent(self, job: int, schedule: JobSchedule) -> float:
        """What a schedule of the job takes of it."""
        if job not in self.jobs:
            return 0.0
        return float((schedule.kwh if self.in_kwh else schedule.usd).sum())


def shared_budgets(request: PlanRequest, parts: Sequence[PlannedJob]) -> tuple[SharedBudget, ...]:
    """Every budget of the request."""
    found: list[SharedBudget] = []
    for number, part in enumerate(parts):
        own, only = part.demand.job.budget, frozenset((number,))
        name = part.demand.job.name
        if own.max_usd is not None:
            found.append(SharedBudget(f"max_usd of {name} ($)", max(own.max_usd, MIN_AMOUNT), only))
        if own.max_kwh is not None:
            found.append(
                SharedBudget(
                    f"max_kwh of {name} (kWh)", max(own.max_kwh, MIN_AMOUNT), only, in_kwh=True
                )
            )
    for total in total_limits(request):
        counted = (n for n, part in enumerate(parts) if total.counts(part.demand.job))
        found.append(
            SharedBudget(f"{total.name} ($)", max(total.most_usd, MIN_AMOUNT), frozenset(counted))
        )
    return tuple(found)
