"""Segments: what each job runs in a solved program, as stretches of time on real pools.

``segments_of`` converts the solution by slot and option to segments; ``verify`` checks the segments
against every constraint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from costopt.domain.errors import SolverError
from costopt.domain.limits import Resource
from costopt.domain.plan import Allocation
from costopt.optimize.colgen.schedule import JobSchedule
from costopt.optimize.limits import LimitIndex, SharedLimit
from costopt.optimize.planned_job import GangGroup, ModelVariables, PlannedJob
from costopt.optimize.pruning import StageConfiguration
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import AVAILABILITY_HORIZON_H, MIN_H, Slot

TOLERANCE = 1e-5
"""Relative slip allowed when a plan is checked outside the solver."""

PAUSE_H = 1e-3
"""A shorter gap between two segments is the solver's tolerance: a slot counts up to a day."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One configuration over a stretch of expected time, in hours from now.

    ``hours`` are the paid hours of work; ``start_h`` the paid start-up before them, 0 where the
    gang goes on. ``earliest_h`` is before when it cannot begin. ``usd``, ``kwh`` and ``score`` are
    its expected totals, ``gco2e_per_kwh`` the mean of its hours (NaN: unknown).
    """

    stage: int
    row: int
    begin_h: float
    end_h: float
    hours: float
    start_h: float
    earliest_h: float
    usd: float
    kwh: float
    score: float
    gco2e_per_kwh: float

    def joined(self, other: Segment) -> Segment:
        """Return this segment and ``other``, which continues the same configuration, as one."""
        hours = self.hours + other.hours
        grams = self.hours * self.gco2e_per_kwh + other.hours * other.gco2e_per_kwh
        return replace(
            self,
            end_h=other.end_h,
            hours=hours,
            start_h=self.start_h + other.start_h,
            usd=self.usd + other.usd,
            kwh=self.kwh + other.kwh,
            score=self.score + other.score,
            gco2e_per_kwh=grams / hours if hours > 0 else other.gco2e_per_kwh,
        )


def schedule_uses(
    part: PlannedJob,
    tariff: SlotCosts,
    uses: Sequence[SlotUse],
    slots: Sequence[Slot],
    *,
    exclusive: bool,
) -> tuple[Segment, ...]:
    """Return the uses as segments in order, each as early as it may begin.

    A use that continues the one before is part of its segment. Where the order is free the faster
    one comes first: it costs the same and leaves more slack.
    """
    segments: list[Segment] = []
    cursor_h = part.demand.release_h
    gang, last = part.table.gang, None
    for use in sorted(uses, key=lambda use: _rank(part, use)):
        row = use.option.row
        goes_on = (
            last is not None
            and gang[last.option.row] == gang[row]
            and (use.carried_in or use.slot == last.slot)
        )
        living = use.carried_in and last is None
        start_h = _start_h(part, row, living=living, goes_on=goes_on)
        earliest_h = _earliest_h(part, row)
        if exclusive:
            earliest_h = max(part.demand.release_h, slots[use.slot].start_h)
        begin_h = max(cursor_h, earliest_h)
        cursor_h = begin_h + start_h + use.hours * float(part.table.calendar[row])
        segment = _segment(part, tariff, use, (begin_h, cursor_h, earliest_h), start_h)
        before = segments[-1] if segments else None
        if goes_on and before is not None and (before.stage, before.row) == (segment.stage, row):
            segments[-1] = before.joined(segment)
        elif use.carried_out or _works(part, use):
            segments.append(segment)
        last = use
    return tuple(segments)


def segments_of(
    part: PlannedJob, tariff: SlotCosts, schedule: JobSchedule, slots: Sequence[Slot]
) -> tuple[Segment, ...]:
    """Return the segments of a schedule over slots, each from its gang's launch or continuation."""
    segments: list[Segment] = []
    release_h = part.demand.release_h
    grams = tariff.gco2e_at(schedule.slot, schedule.row)
    for i in range(len(schedule)):
        row, slot = int(schedule.row[i]), slots[int(schedule.slot[i])]
        begin_h = max(slot.start_h, release_h)
        held_h, start_h = float(schedule.held_h[i]), float(schedule.start_h[i])
        segment = Segment(
            stage=int(schedule.stage[i]),
            row=row,
            begin_h=begin_h,
            end_h=begin_h + start_h + held_h,
            hours=held_h / float(part.table.stretch[row]),
            start_h=start_h,
            earliest_h=begin_h,
            usd=float(schedule.usd[i]),
            kwh=float(schedule.kwh[i]),
            score=float(schedule.score[i]),
            gco2e_per_kwh=float(grams[i]),
        )
        last = segments[-1] if segments else None
        follows = last is not None and begin_h - last.end_h < 1e-6 and not schedule.starts[i]
        if follows and last is not None and (last.stage, last.row) == (segment.stage, row):
            segments[-1] = last.joined(segment)
        else:
            segments.append(segment)
    return tuple(segments)


def with_hourly_carbon(
    request: PlanRequest, part: PlannedJob, segments: Sequence[Segment]
) -> tuple[Segment, ...]:
    """Return the segments with the forecast carbon intensity of the hours in which they lie."""
    if not request.carbon_forecasts:
        return tuple(segments)
    spans = [Slot(s.begin_h, max(s.end_h, s.begin_h + MIN_H), near=False) for s in segments]
    outlook = ForecastTable.of(request, spans)
    tariff = SlotCosts.of(outlook, part.table, request.policy.objective)
    rows = np.array([segment.row for segment in segments], dtype=np.int64)
    grams = tariff.gco2e_at(np.arange(len(rows)), rows).tolist()
    return tuple(
        replace(segment, gco2e_per_kwh=each) for segment, each in zip(segments, grams, strict=True)
    )


def _earliest_h(part: PlannedJob, row: int) -> float:
    table, release_h = part.table, part.demand.release_h
    usable_now = bool(table.now[row] or table.running[row])
    earliest_h = release_h if usable_now else max(release_h, AVAILABILITY_HORIZON_H)
    return max(earliest_h, float(table.from_h[row]))


def _start_h(part: PlannedJob, row: int, *, living: bool, goes_on: bool) -> float:
    if goes_on:
        return 0.0
    whole_h = float(part.table.start_h[row])
    return min(part.demand.starting_h, whole_h) if living else whole_h


def _segment(
    part: PlannedJob,
    tariff: SlotCosts,
    use: SlotUse,
    times_h: tuple[float, float, float],
    start_h: float,
) -> Segment:
    """``times_h`` are its begin, its end and before when it cannot begin."""
    table, row = part.table, use.option.row
    slot, rows = np.array([use.slot]), np.array([row])
    share = start_h / max(float(table.start_h[row]), 1e-12)
    usd_per_hour, usd_per_start = tariff.usd_at(slot, rows)
    score_per_hour, start_score = tariff.score_at(slot, rows)
    return Segment(
        stage=use.option.stage,
        row=row,
        begin_h=times_h[0],
        end_h=times_h[1],
        hours=use.hours,
        start_h=start_h,
        earliest_h=times_h[2],
        usd=use.hours * float(usd_per_hour[0]) + share * float(usd_per_start[0]),
        kwh=use.hours * float(table.kwh_per_hour[row]) + share * float(table.kwh_per_start[row]),
        score=use.hours * float(score_per_hour[0]) + share * float(start_score[0]),
        gco2e_per_kwh=float(tariff.gco2e_at(slot, rows)[0]),
    )


def _works(part: PlannedJob, use: SlotUse) -> bool:
    """Whether a use is more than the solver's dust; of a tiny job a tiny use may be the whole."""
    units = use.hours * part.units_per_hour(use.option)
    return use.hours > 1e-9 or units > TOLERANCE * part.demand.stages[use.option.stage].units


def _rank(part: PlannedJob, use: SlotUse) -> tuple[int, bool, int, bool, float]:
    rate = float(part.table.paid_units_per_hour[use.option.row])
    return use.slot, not use.carried_in, use.option.stage, use.carried_out, -rate


def allocations_of(
    part: PlannedJob, segments: Sequence[Segment], now: datetime
) -> tuple[Allocation, ...]:
    """Return one allocation per pool and segment."""
    return tuple(
        Allocation(
            part.demand.job.name,
            pool,
            nodes,
            now + timedelta(hours=segment.begin_h),
            now + timedelta(hours=segment.end_h),
            _cap_w(part, segment.row),
            _paid_h(part, segment),
        )
        for segment in segments
        for pool, nodes in part.table.parts(segment.row)
    )


def _paid_h(part: PlannedJob, segment: Segment) -> float:
    """The wait of a start costs nothing."""
    whole_h, wait_h = (float(each[segment.row]) for each in (part.table.start_h, part.table.wait_h))
    return segment.hours + segment.start_h * (1 - wait_h / max(whole_h, 1e-12))


def _cap_w(part: PlannedJob, row: int) -> float | None:
    cap_w = float(part.table.cap_w[row])
    return None if math.isnan(cap_w) else cap_w


def verify(part: PlannedJob, segments: Sequence[Segment]) -> None:
    """Raise SolverError if the segments violate a constraint: such a plan is never shown.

    Checked are: all work is done, stages are in order, pauses occur only where allowed, one
    configuration runs at a time, and the job ends in time.
    """
    demand, table = part.demand, part.table
    name = demand.job.name
    for number, stage in enumerate(demand.stages):
        own = [s for s in segments if s.stage == number]
        done = sum(s.hours * part.units_per_hour(StageConfiguration(s.stage, s.row)) for s in own)
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
    paused = pause_of(part, segments)
    if paused is not None:
        raise SolverError(f"job {name!r}: the plan pauses in phase {paused}, which may not")
    if end_h > demand.due_h * (1 + TOLERANCE) + TOLERANCE:
        raise SolverError(f"job {name!r}: the plan ends after the deadline less the reserve")
    _verify_budget(part, segments)


def pause_of(part: PlannedJob, segments: Sequence[Segment]) -> str | None:
    """Return the phase that may not pause and does in these segments; None if there is none.

    The segments are in order. The time that a segment holds for the worst case, beyond its expected
    end, is not a pause.
    """
    for before, after in pairwise(segments):
        stage = part.demand.stages[after.stage]
        held_h = before.start_h + before.hours * float(part.table.stretch[before.row])
        waits = after.begin_h - max(before.end_h, before.begin_h + held_h) > PAUSE_H
        if waits and before.stage == after.stage and not stage.may_pause:
            return stage.name
    return None


def _verify_budget(part: PlannedJob, segments: Sequence[Segment]) -> None:
    budget = part.demand.job.budget
    usd, kwh = sum(s.usd for s in segments), sum(s.kwh for s in segments)
    for most, value, unit in ((budget.max_usd, usd, "$"), (budget.max_kwh, kwh, "kWh")):
        if most is not None and value > most * (1 + 10 * TOLERANCE):
            raise SolverError(f"job {part.demand.job.name!r}: {value:g} {unit} exceed {most:g}")


def broken_limits(
    request: PlanRequest,
    limits: Sequence[SharedLimit],
    planned: Sequence[tuple[PlannedJob, Sequence[Segment]]],
) -> list[str]:
    """Return the names of the shared limits that the jobs violate together at some instant."""
    return [
        limits[number].name
        for number, load in peak_loads(request, limits, planned).items()
        if load > limits[number].most * (1 + TOLERANCE)
    ]


def peak_loads(
    request: PlanRequest,
    limits: Sequence[SharedLimit],
    planned: Sequence[tuple[PlannedJob, Sequence[Segment]]],
) -> dict[int, float]:
    """Return the greatest load at any instant, by the number of each limit that the jobs touch."""
    index = LimitIndex(request, limits)
    stretches: dict[int, list[tuple[float, float, float]]] = {}
    for part, segments in planned:
        for segment in segments:
            for number, load in index.loads(part.demand, part.table, segment.row):
                held = _load(limits[number], segment, load)
                stretches.setdefault(number, []).append((segment.begin_h, segment.end_h, held))
    return {
        number: _peak(stretches[number], near=limits[number].near) for number in sorted(stretches)
    }


def _peak(stretches: Sequence[tuple[float, float, float]], *, near: bool) -> float:
    """The greatest load at the begin of any stretch; of limits on the present only up to then."""
    begin, end, load = np.array(stretches).T
    at = begin[begin < AVAILABILITY_HORIZON_H - TOLERANCE] if near else begin
    if not len(at):
        return 0.0
    by_begin, by_end = np.argsort(begin), np.argsort(end)
    begun = np.concatenate(([0.0], np.cumsum(load[by_begin])))
    ended = np.concatenate(([0.0], np.cumsum(load[by_end])))
    until = at + TOLERANCE
    there = begun[np.searchsorted(begin[by_begin], until, side="right")]
    gone = ended[np.searchsorted(end[by_end], until, side="right")]
    return float((there - gone).max())


def _load(limit: SharedLimit, segment: Segment, load: float) -> float:
    """What a segment adds; dollars per hour at the prices of when it runs."""
    hours = segment.hours + segment.start_h
    if limit.resource is not Resource.USD_PER_HOUR or hours <= 0:
        return load
    return segment.usd / hours


Values = tuple[float, ...]
"""The solved value of each variable, by its number."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """An option in a slot, as solved: hours of work, and whether its gang starts or runs on."""

    option: StageConfiguration
    slot: int
    hours: float
    carried_in: bool
    carried_out: bool


def uses_of(part: PlannedJob, cells: ModelVariables, values: Values) -> list[SlotUse]:
    """Return the options that the job uses, by slot."""
    uses: list[SlotUse] = []
    for o, t in sorted(cells.x, key=lambda key: (key[1], key[0])):
        option = part.options[o]
        group = part.group(option)
        if values[cells.u[group, t]] < 0.5:
            continue
        hours = max(0.0, values[cells.x[o, t]]) * cells.hours[o, t]
        if hours <= 0 and not _stands_for_gang(values, cells, group, o, t):
            continue
        carried_in = _on(values, cells.k.get((group, t)))
        uses.append(SlotUse(option, t, hours, carried_in, _runs_on(values, cells, group, t)))
    return uses


def _runs_on(values: Values, cells: ModelVariables, group: GangGroup, t: int) -> bool:
    """Whether the gang goes on into the next slot, in its stage or the next one."""
    stage, gang = group
    return any(_on(values, cells.k.get(((s, gang), t + 1))) for s in (stage, stage + 1))


def _stands_for_gang(
    values: Values, cells: ModelVariables, group: GangGroup, option: int, t: int
) -> bool:
    """Whether no power cap of the gang works in the slot, and this is the first one."""
    members = cells.members[group, t]
    return option == members[0] and not any(values[cells.x[o, t]] > 0 for o in members)


def _on(values: Values, variable: int | None) -> bool:
    return variable is not None and values[variable] > 0.5
