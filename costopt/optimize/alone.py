"""A job on one configuration from beginning to end, as segments like those of a plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costopt.domain.errors import SolverError
from costopt.domain.policy import Objective, ObjectiveTerm
from costopt.optimize.aims import part_with_objective
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import Segment, verify
from costopt.optimize.prune import (
    StageConfiguration,
    can_run_stage,
    single_held_h,
    single_score,
    usable_h,
)
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import total_limits
from costopt.optimize.slots import AVAILABILITY_HORIZON_H

MAX_PLANS = 4
"""How many of the best plans of one configuration are simulated."""


def single_configuration_plans(
    request: PlanRequest, part: PlannedJob, below_usd: float, aim: ObjectiveTerm | None = None
) -> Iterator[tuple[Segment, ...]]:
    """Plans of one configuration whose objective is less than ``below_usd``, the best first.

    The best has the least of the aim's figure, by default of the objective. They keep the job's
    time and budgets. For a job that does not share its limits, at constant prices; they are those
    of ``part``, whose margin decides on what fits.
    """
    table, demand = part.table, part.demand
    score = single_score(table, demand)
    figure = score if aim is None else _figure(part, aim)
    fits = (single_held_h(table, demand) <= usable_h(table, demand)) & (score < below_usd)
    for number, stage in enumerate(demand.stages):
        fits &= can_run_stage(table, stage, number)
    rows = np.flatnonzero(fits)
    for row in rows[np.argsort(figure[rows], kind="stable")][:MAX_PLANS].tolist():
        segments = single_configuration_segments(part, row)
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
        if total.counts(part.demand.job) and spent_usd > total.most_usd:
            return False
    try:
        verify(part, segments)
    except SolverError:
        return False
    return True


def single_configuration_segments(part: PlannedJob, row: int) -> tuple[Segment, ...]:
    """Every stage on the row, at the table's prices, from the earliest time it may begin.

    The row must be able to run every stage. Nothing is said of whether it ends in time.
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
