"""From the solved program to stretches of time on real pools, and the check of every constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from costopt.domain.errors import SolverError
from costopt.domain.plan import Allocation
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.model import JobPart, Use
from costopt.optimize.request import PlanRequest
from costopt.optimize.shared import SharedLimit
from costopt.optimize.slots import BELIEF_H, Slot

TOLERANCE = 1e-5
"""Relative slip allowed when a plan is checked outside the solver."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One configuration over a stretch of expected time, in hours from now.

    ``hours`` are the paid hours of work; ``start_h`` the paid start-up before them, 0 where the
    living gang goes on. ``earliest_h`` is before when it cannot begin.
    """

    stage: int
    row: int
    begin_h: float
    end_h: float
    hours: float
    start_h: float
    earliest_h: float


def lay_out(
    part: JobPart, uses: Sequence[Use], slots: Sequence[Slot], *, exclusive: bool
) -> tuple[Segment, ...]:
    """Uses in order, each as early as it may begin; one that runs on is one segment.

    Where the order is free the faster comes first: it costs the same and leaves more slack.
    """
    segments: list[Segment] = []
    cursor_h = part.demand.release_h
    ordered = sorted(uses, key=lambda use: _rank(part, use))
    for use in ordered:
        row = use.option.row
        usable_now = bool(part.table.now[row] or part.table.running[row])
        earliest_h = part.demand.release_h if usable_now else max(part.demand.release_h, BELIEF_H)
        if exclusive:
            earliest_h = slots[use.slot].start_h
        begin_h = max(cursor_h, earliest_h)
        run_h = use.hours * float(part.table.calendar[row])
        last = segments[-1] if segments else None
        if use.carried_in and last is not None and last.row == row:
            cursor_h = begin_h + run_h
            segments[-1] = Segment(
                use.option.stage,
                row,
                last.begin_h,
                cursor_h,
                last.hours + use.hours,
                last.start_h,
                last.earliest_h,
            )
            continue
        living = use.carried_in and last is None
        start_h = part.demand.starting_h if living else part.demand.job.overhead_s / 3600
        cursor_h = begin_h + start_h + run_h
        if use.carried_out or _works(part, use):
            segments.append(
                Segment(use.option.stage, row, begin_h, cursor_h, use.hours, start_h, earliest_h)
            )
    return tuple(segments)


def _works(part: JobPart, use: Use) -> bool:
    """Whether a use is more than the solver's dust; of a tiny job a tiny use may be the whole."""
    units = use.hours * float(part.table.paid_units_per_hour[use.option.row])
    return use.hours > 1e-9 or units > TOLERANCE * part.demand.stages[use.option.stage].units


def _rank(part: JobPart, use: Use) -> tuple[int, bool, int, bool, float]:
    rate = float(part.table.paid_units_per_hour[use.option.row])
    return use.slot, not use.carried_in, use.option.stage, use.carried_out, -rate


def allocations_of(
    part: JobPart, segments: Sequence[Segment], now: datetime
) -> tuple[Allocation, ...]:
    """One allocation per pool and segment."""
    return tuple(
        Allocation(
            part.demand.job.name,
            pool,
            nodes,
            now + timedelta(hours=segment.begin_h),
            now + timedelta(hours=segment.end_h),
        )
        for segment in segments
        for pool, nodes in part.table.parts(segment.row)
    )


def verify(part: JobPart, segments: Sequence[Segment]) -> None:
    """Work done, stages in order, one configuration at a time, inside the job's time.

    Raises SolverError: a plan that fails here is never shown.
    """
    demand, table = part.demand, part.table
    name = demand.job.name
    for number, stage in enumerate(demand.stages):
        own = [s for s in segments if s.stage == number]
        done = sum(s.hours * float(table.paid_units_per_hour[s.row]) for s in own)
        if not done >= stage.units * (1 - TOLERANCE):
            raise SolverError(f"job {name!r}: the plan does {done:g} of {stage.units:g} units")
        if any(not stage.min_nodes <= table.nodes[s.row] <= stage.max_nodes for s in own):
            raise SolverError(f"job {name!r}: the plan breaks a phase's gang size")
    end_h = demand.release_h
    for segment in segments:
        if segment.begin_h < max(end_h, segment.earliest_h) - TOLERANCE:
            raise SolverError(f"job {name!r}: two configurations of the plan overlap")
        end_h = segment.end_h
    if any(a.stage > b.stage for a, b in pairwise(segments)):
        raise SolverError(f"job {name!r}: the plan runs a later phase first")
    if end_h > demand.due_h * (1 + TOLERANCE) + TOLERANCE:
        raise SolverError(f"job {name!r}: the plan ends after the deadline less the reserve")
    _verify_budget(part, segments)


def _verify_budget(part: JobPart, segments: Sequence[Segment]) -> None:
    budget, table = part.demand.job.budget, part.table
    usd = spent(segments, table, part.demand, "usd")
    kwh = spent(segments, table, part.demand, "kwh")
    for most, value, unit in ((budget.max_usd, usd, "$"), (budget.max_kwh, kwh, "kWh")):
        if most is not None and value > most * (1 + 10 * TOLERANCE):
            raise SolverError(f"job {part.demand.job.name!r}: {value:g} {unit} exceed {most:g}")


def spent(
    segments: Sequence[Segment], table: ConfigurationTable, demand: Demand, what: str
) -> float:
    """Expected dollars (``what`` "usd"), kWh ("kwh") or objective ("score") of the segments."""
    per_hour, per_start = {
        "usd": (table.usd_per_hour, table.usd_per_start),
        "kwh": (table.kwh_per_hour, table.kwh_per_start),
        "score": (table.score_per_hour, table.start_score),
    }[what]
    whole_start_h = max(demand.job.overhead_s / 3600, 1e-12)
    return sum(
        s.hours * float(per_hour[s.row]) + s.start_h / whole_start_h * float(per_start[s.row])
        for s in segments
    )


def broken_limits(
    request: PlanRequest,
    limits: Sequence[SharedLimit],
    planned: Sequence[tuple[JobPart, Sequence[Segment]]],
) -> list[str]:
    """Names of the shared limits that the jobs break together at some instant."""
    starts = sorted({s.begin_h for _, segments in planned for s in segments})
    broken: list[str] = []
    for limit in limits:
        for at_h in starts:
            if limit.near and at_h >= BELIEF_H - TOLERANCE:
                continue
            load = sum(
                limit.load(request, part.demand, part.table, segment.row)
                for part, segments in planned
                for segment in segments
                if segment.begin_h <= at_h + TOLERANCE and at_h + TOLERANCE < segment.end_h
            )
            if load > limit.most * (1 + TOLERANCE):
                broken.append(limit.name)
                break
    return broken
