"""The plan of a fleet, and the prices and schedules from which the next one starts.

A warm start identifies prices and schedules by names and times that stay the same between plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import Pool
from costopt.optimize.colgen.capacity import SharedCapacity
from costopt.optimize.colgen.master import DualValues
from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.packing import SchedulePacking
from costopt.optimize.colgen.pricing import PricingSolution
from costopt.optimize.colgen.schedule import JobSchedule, schedule_of, trim_excess_work
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable
from costopt.optimize.slots import Slot

Gang = tuple[tuple[tuple[Pool, int], ...], float]
"""(pool, nodes) of each part, and the power cap; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class WarmAllocation:
    """What a job was to run in a slot [begin_at, end_at)."""

    begin_at: datetime
    end_at: datetime
    stage: str
    gang: Gang


@dataclass(slots=True)
class WarmStart:
    """Prices and schedules that the caller keeps between plans; empty before the first plan.

    ``shared`` are prices by limit's name with the slot that each was for, ``work`` by job and
    stage's name. ``gap`` is how near to the bound of these prices the last plan came, None before
    the first. ``bolder`` are those of plans that hold back less of the margin for the worst, and
    ``margin`` is the share of the one that was taken, None for the whole. ``plan`` is the last one
    over slots.
    """

    shared: dict[str, list[tuple[datetime, datetime, float]]] = field(default_factory=dict)
    work: dict[tuple[str, str], float] = field(default_factory=dict)
    held: dict[str, list[WarmAllocation]] = field(default_factory=dict)
    gap: float | None = None
    margin: float | None = None
    bolder: dict[float, WarmStart] = field(default_factory=dict)
    plan: FleetPlan | None = None

    @property
    def chosen_plan(self) -> FleetPlan | None:
        """Return the plan over slots that was taken last; None where jobs were planned apart."""
        return self.plan if self.margin is None else self.of_margin(self.margin).plan

    def of_margin(self, share: float) -> WarmStart:
        """Return the state left by the plans that reserved this share of the margin."""
        return self.bolder.setdefault(share, WarmStart())

    def keep(
        self, request: PlanRequest, parts: Sequence[PlannedJob], plan: FleetPlan, bound_usd: float
    ) -> None:
        """Store the prices and schedules of a plan; the prices prove ``bound_usd``."""
        spans = _spans(request.now, plan.slots)
        self.shared = {}
        for number, slot in np.argwhere(plan.duals.shared > 0).tolist():
            name, price = plan.capacity.limits[number].name, float(plan.duals.shared[number, slot])
            self.shared.setdefault(name, []).append((*spans[slot], price))
        self.work = {
            (part.demand.job.name, stage.name): float(price)
            for part, prices in zip(parts, plan.duals.work, strict=True)
            for stage, price in zip(part.demand.stages, prices.tolist(), strict=True)
        }
        self.held = {
            part.demand.job.name: _held(part, schedule, spans)
            for part, schedule in zip(parts, plan.schedules, strict=True)
            if schedule is not None
        }
        self.gap, self.plan = replace(plan, bound_usd=bound_usd).gap, plan

    def cuts_h(self, now: datetime) -> list[float]:
        """Return where the last plan's slots begin, in hours from now, if patterns cut them."""
        if self.plan is None or not self.plan.of_patterns:
            return []
        since_h = (now - self.plan.capacity.request.now).total_seconds() / 3600
        return [slot.start_h - since_h for slot in self.plan.slots]

    def prices(
        self, parts: Sequence[PlannedJob], capacity: SharedCapacity, start: DualValues
    ) -> DualValues:
        """Return the stored prices where limits and times are the same, else the given ones."""
        if not self.shared and not self.work:
            return start
        spans = _spans(capacity.request.now, capacity.slots)
        shared = np.zeros_like(start.shared)
        for number, limit in enumerate(capacity.limits):
            if limit.name in self.shared:
                shared[number] = _again(self.shared[limit.name], spans)
        work = tuple(
            np.array(
                [
                    self.work.get((part.demand.job.name, stage.name), price)
                    for stage, price in zip(part.demand.stages, prices.tolist(), strict=True)
                ]
            )
            for part, prices in zip(parts, start.work, strict=True)
        )
        return replace(start, shared=shared, work=work)

    def place(self, parts: Sequence[PlannedJob], menus: Menus, packing: SchedulePacking) -> None:
        """Place the stored schedules, as far as they still do the work and fit."""
        spans = _spans(packing.now, menus[0].slots)
        for job, part in enumerate(parts):
            held = self.held.get(part.demand.job.name)
            if held is None:
                continue
            menus.extend(job, _rows_of(part, {one.gang for one in held}))
            path = _path(menus[job], held, spans)
            if path is None:
                continue
            schedule = trim_excess_work(menus[job], schedule_of(menus[job], path))
            if schedule.serves(menus[job].work) and packing.fits(job, schedule):
                packing.place(job, schedule)


Span = tuple[datetime, datetime]


def _spans(now: datetime, slots: Sequence[Slot]) -> list[Span]:
    return [
        (now + timedelta(hours=slot.start_h), now + timedelta(hours=slot.end_h)) for slot in slots
    ]


def _held(part: PlannedJob, schedule: JobSchedule, spans: Sequence[Span]) -> list[WarmAllocation]:
    stages = part.demand.stages
    return [
        WarmAllocation(spans[slot][0], spans[slot][1], stages[stage].name, _gang(part, row))
        for slot, stage, row in zip(
            schedule.slot.tolist(), schedule.stage.tolist(), schedule.row.tolist(), strict=True
        )
    ]


def _gang(part: PlannedJob, row: int) -> Gang:
    cap_w = float(part.table.cap_w[row])
    return tuple(sorted(part.table.parts(row))), 0.0 if np.isnan(cap_w) else cap_w


def _rows_of(part: PlannedJob, gangs: Iterable[Gang]) -> NDArray[np.int64]:
    """The table's rows of these gangs, as far as they are still on offer."""
    table = part.table
    number_of = {offer.pool: number for number, offer in enumerate(table.offers)}
    found: list[int] = []
    for parts, cap_w in gangs:
        nodes = sum(count for _, count in parts)
        same_cap = np.isnan(table.cap_w) if cap_w == 0 else table.cap_w == cap_w
        offer = number_of.get(parts[0][0], -2) if len(parts) == 1 else -1
        alike = np.flatnonzero((table.offer == offer) & (table.nodes == nodes) & same_cap)
        found.extend(r for r in alike.tolist() if len(parts) == 1 or _gang(part, r)[0] == parts)
    return np.array(sorted(found), dtype=np.int64)


def _again(known: Sequence[tuple[datetime, datetime, float]], spans: Sequence[Span]) -> Array:
    """The price of the slot in which the middle of each new one lies; 0 where there was none."""
    middles = [begin + (end - begin) / 2 for begin, end in spans]
    return np.array(
        [next((p for begin, end, p in known if begin <= at < end), 0.0) for at in middles]
    )


def _path(
    menu: JobMenu, held: Sequence[WarmAllocation], spans: Sequence[Span]
) -> PricingSolution | None:
    """What was held, over the new slots; None where it is no longer on the menu."""
    place_of = {_gang(menu.part, int(row)): n for n, row in enumerate(menu.rows.tolist())}
    stage_of = {stage.name: q for q, stage in enumerate(menu.part.demand.stages)}
    steps: list[tuple[int, int, int, bool]] = []
    for t, (begin, end) in enumerate(spans):
        at = begin + (end - begin) / 2
        one = next((h for h in held if h.begin_at <= at < h.end_at), None)
        if one is None or menu.hours[t] <= 0:
            continue
        place, stage = place_of.get(one.gang), stage_of.get(one.stage)
        if place is None or stage is None or not menu.usable[t, place]:
            return None
        steps.append((t, stage, place, _starts(menu, steps, t, place)))
    return PricingSolution(0.0, np.array(steps, dtype=np.int64).reshape(-1, 4))


def _starts(menu: JobMenu, steps: Sequence[tuple[int, int, int, bool]], t: int, place: int) -> bool:
    """Whether the gang is launched there, and does not run on from before."""
    gang = menu.gang[place]
    if not steps:
        return not (t == 0 and gang == menu.live)
    return bool(steps[-1][0] + 1 != t or menu.gang[steps[-1][2]] != gang)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """``schedules`` by job, None for those not served; ``bound_usd`` holds on ``slots``.

    ``of_patterns`` tells whether all were made side by side (``slot_patterns``).
    """

    slots: tuple[Slot, ...]
    outlook: ForecastTable
    schedules: tuple[JobSchedule | None, ...]
    bound_usd: float
    duals: DualValues
    capacity: SharedCapacity
    columns: tuple[tuple[int, JobSchedule], ...]
    menus: Menus
    build_s: float = 0.0
    of_patterns: bool = False

    @property
    def score(self) -> float:
        """Return the objective in dollars."""
        return sum(s.total_score for s in self.schedules if s is not None)

    @property
    def gap(self) -> float:
        """Return the proven relative distance to the best plan."""
        return max(0.0, self.score - self.bound_usd) / max(abs(self.score), 1e-9)
