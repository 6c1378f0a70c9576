"""Which jobs contend: how each of them decides then depends on the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from costopt.domain.limits import ROUNDING
from costopt.optimize.limits import LimitIndex, shared_limits, total_limits
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.request import PlanRequest
from costopt.planning.forecast.gangs import gang_rows


def contending_groups(
    request: PlanRequest, parts: Sequence[PlannedJob]
) -> tuple[tuple[PlannedJob, ...], ...]:
    """Return the jobs in groups that do not contend with each other, in their order.

    Jobs contend where the largest gangs that each would choose exceed a quota or limit together, or
    where a budget is too small for each of them on uninterruptible capacity.
    """
    group = {part.demand.job.name: {part.demand.job.name} for part in parts}
    for names in (*_over_limits(request, parts), *_over_budgets(request, parts)):
        joined = set[str]().union(*(group[name] for name in names))
        group |= dict.fromkeys(joined, joined)
    distinct = {id(names): names for names in group.values()}
    return tuple(
        tuple(part for part in parts if part.demand.job.name in names)
        for names in distinct.values()
    )


def _over_limits(request: PlanRequest, parts: Sequence[PlannedJob]) -> Iterator[list[str]]:
    if len(parts) < 2:
        return
    # The room of a pool is of the present; the others hold at all times.
    limits = [limit for limit in shared_limits(request) if not limit.near]
    index = LimitIndex(request, limits)
    largest: dict[int, dict[str, float]] = {}
    for part in parts:
        name = part.demand.job.name
        for row in np.concatenate(gang_rows(part.table, part.demand)).tolist():
            for number, load in index.loads(part.demand, part.table, row):
                held = largest.setdefault(number, {})
                held[name] = max(held.get(name, 0.0), load)
    for number, held in largest.items():
        if len(held) > 1 and sum(held.values()) > limits[number].most + ROUNDING:
            yield list(held)


def _over_budgets(request: PlanRequest, parts: Sequence[PlannedJob]) -> Iterator[list[str]]:
    usd = {part.demand.job.name: _safe_usd(part) for part in parts}
    for total in total_limits(request):
        counted = [part.demand.job.name for part in parts if total.counts(part.demand.job)]
        if len(counted) > 1 and sum(usd[name] for name in counted) > total.max_usd:
            yield counted


def _safe_usd(part: PlannedJob) -> float:
    """Return the dollars of the job on the cheapest uninterruptible gang, 0 where there is none."""
    table, (_, rows) = part.table, gang_rows(part.table, part.demand)
    usd = table.usd_per_hour[rows] * part.demand.units / table.speed[rows] / 3600
    return float(usd.min()) if len(usd) else 0.0
