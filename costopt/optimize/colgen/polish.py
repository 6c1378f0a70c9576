"""A mixed-integer program over the cells of column generation: it closes the gap that this leaves.

Small problems are solved whole. Of larger ones only the cells (option, slot) count that a schedule
seen so far has used: parts of several schedules can be cheaper together than each of them. Plans
made of patterns gained nothing by that, in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.warm_start import FleetPlan
from costopt.optimize.limits import shared_limits
from costopt.optimize.model import PlanModel
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import StageConfiguration
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment, schedule_uses, verify
from costopt.optimize.slot_costs import SlotCosts
from costopt.optimize.solver import SolveStatus

MAX_FULL_CELLS = 3000
"""Cells of all jobs up to which every one is looked at."""

MAX_CELLS, MAX_SHARED_CELLS = 8_000, 1_500
"""Cells, of one job and of several, beyond which the solver finds nothing better in seconds."""

MAX_POLISH_S = 2.0
"""Seconds: with up to four, plans of made-up problems were cheaper by less than 0.1 %."""


def polish(
    request: PlanRequest,
    parts: Sequence[PlannedJob],
    plan: FleetPlan,
    stop_at: float,
    gap: float,
    solver: str | None,
) -> list[tuple[Segment, ...]] | None:
    """Return the checked segments of each job; None where the solver finds nothing in time.

    ``stop_at`` is a time of the clock ``time.perf_counter``.
    """
    stop_at = min(stop_at, time.perf_counter() + MAX_POLISH_S)
    narrowed = _narrowed(parts, plan)
    if narrowed is None or time.perf_counter() >= stop_at:
        return None
    limits = shared_limits(request) if len(parts) > 1 else ()
    model = PlanModel(request, narrowed, plan.slots, limits, exclusive=True)
    left_s = stop_at - time.perf_counter()
    if left_s <= 0:
        return None
    solution = model.solve(time_limit_s=left_s, gap=gap, solver=solver)
    if solution.outcome not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return None
    found: list[tuple[Segment, ...]] = []
    for part, uses in zip(narrowed, model.uses(solution), strict=True):
        tariff = SlotCosts.of(plan.outlook, part.table, request.policy.objective)
        segments = schedule_uses(part, tariff, uses, plan.slots, exclusive=True)
        verify(part, segments)
        found.append(segments)
    return found


def _narrowed(parts: Sequence[PlannedJob], plan: FleetPlan) -> list[PlannedJob] | None:
    if sum(_cell_count(plan.menus[job]) for job in range(len(parts))) <= MAX_FULL_CELLS:
        return [_whole(part, plan, job) for job, part in enumerate(parts)]
    if plan.of_patterns:
        return None
    used = [_used(part, plan, job) for job, part in enumerate(parts)]
    most = MAX_CELLS if len(parts) == 1 else MAX_SHARED_CELLS
    return used if sum(len(part.cells or ()) for part in used) <= most else None


def _cell_count(menu: JobMenu) -> int:
    return sum(int(menu.usable[:, units > 0].sum()) for units in menu.units)


def _whole(part: PlannedJob, plan: FleetPlan, job: int) -> PlannedJob:
    menu = plan.menus[job]
    options = [
        StageConfiguration(stage, row)
        for stage, units in enumerate(menu.units)
        for row in menu.rows[units > 0].tolist()
    ]
    place_of = {row: place for place, row in enumerate(menu.rows.tolist())}
    cells = {
        (number, slot)
        for number, option in enumerate(options)
        for slot in np.flatnonzero(menu.usable[:, place_of[option.row]]).tolist()
    }
    return replace(part, options=options, cells=cells)


def _used(part: PlannedJob, plan: FleetPlan, job: int) -> PlannedJob:
    triples = {
        triple
        for owner, schedule in plan.columns
        if owner == job
        for triple in zip(
            schedule.stage.tolist(), schedule.row.tolist(), schedule.slot.tolist(), strict=True
        )
    }
    pairs = sorted({(stage, row) for stage, row, _ in triples})
    number_of = {pair: number for number, pair in enumerate(pairs)}
    cells = {(number_of[stage, row], slot) for stage, row, slot in triples}
    return replace(
        part, options=[StageConfiguration(stage, row) for stage, row in pairs], cells=cells
    )
