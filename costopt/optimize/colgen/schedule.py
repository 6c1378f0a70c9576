"""One job's schedule over the slots: a column of the master problem, and a plan once it is chosen.

A gang that starts in a slot works less there by its start-up; where that is longer than the slot
the rest is taken from the next ones. The last slot of a run may be left early: that is where work
beyond what the job needs is trimmed, the most expensive first.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.colgen.menu import JobMenu
from costopt.optimize.colgen.pricing import PricingSolution
from costopt.optimize.rates import Array

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JobSchedule:
    """Its slots in order, as arrays of the same length.

    ``row`` is of the job's table; ``held_h`` the working hours of the gang in the slot, after
    ``start_h`` hours of its start-up; ``starts`` whether it is launched there. ``living`` tells
    whether the first gang is the one that ran when the plan was made. ``units``, ``score``,
    ``usd``, ``kwh`` and ``gco2e`` (NaN: unknown) are by slot, ``work`` (Q,) the units by stage.
    """

    slot: Numbers
    stage: Numbers
    row: Numbers
    starts: NDArray[np.bool_]
    held_h: Array
    start_h: Array
    units: Array
    score: Array
    usd: Array
    kwh: Array
    gco2e: Array
    work: Array
    living: bool

    @property
    def total_score(self) -> float:
        """Return the objective in dollars."""
        return float(self.score.sum())

    def scored_by(self, weights: Objective) -> Array:
        """Return the score of each slot under another objective, shape (n,)."""
        score = weights.usd * self.usd
        if weights.usd_per_kwh:
            score = score + weights.usd_per_kwh * self.kwh
        if weights.usd_per_tonne_co2e:
            score = score + weights.usd_per_tonne_co2e / 1e6 * self.gco2e
        return score

    def __len__(self) -> int:
        return len(self.slot)

    def serves(self, work: Array) -> bool:
        """Return whether every stage's work is done."""
        return bool((self.work >= work * (1 - 1e-9)).all())


def schedule_of(menu: JobMenu, path: PricingSolution) -> JobSchedule:
    """Return the schedule of a path, with all the work that its slots give."""
    slot, stage, place = path.steps[:, 0], path.steps[:, 1], path.steps[:, 2]
    starts = path.steps[:, 3] > 0
    living = len(starts) > 0 and not bool(starts[0])
    start_h = _start_hours(menu, slot, place, starts)
    return with_costs(menu, slot, stage, place, starts, menu.hours[slot] - start_h, start_h, living)


def _start_hours(menu: JobMenu, slot: Numbers, place: Numbers, starts: NDArray[np.bool_]) -> Array:
    """Hours of start-up in each slot; what does not fit goes over to the next one."""
    hours = menu.hours[slot]
    taken = np.zeros(len(slot))
    owed_h = menu.starting_h
    for i, (begins, gang) in enumerate(
        zip(starts.tolist(), menu.gang[place].tolist(), strict=True)
    ):
        if begins:
            owed_h = float(menu.start_h[gang])
        if owed_h > 0:
            taken[i] = min(owed_h, float(hours[i]))
            owed_h -= taken[i]
    return taken


def with_costs(
    menu: JobMenu,
    slot: Numbers,
    stage: Numbers,
    place: Numbers,
    starts: NDArray[np.bool_],
    held_h: Array,
    start_h: Array,
    living: bool,
) -> JobSchedule:
    """Return the schedule with its figures; ``place`` holds places in the menu."""
    table, row, gang = menu.part.table, menu.rows[place], menu.gang[place]
    paid_h = held_h / table.stretch[row]
    share = start_h / np.maximum(menu.start_h[gang], 1e-12)
    usd_per_hour, usd_per_start = menu.tariff.usd_at(slot, row)
    score_per_hour, start_score = menu.tariff.score_at(slot, row)
    units = held_h * menu.units[stage, place]
    work = np.bincount(stage, weights=units, minlength=len(menu.work))
    kwh = paid_h * table.kwh_per_hour[row] + share * table.kwh_per_start[row]
    return JobSchedule(
        slot=slot,
        stage=stage,
        row=row,
        starts=starts,
        held_h=held_h,
        start_h=start_h,
        units=units,
        score=paid_h * score_per_hour + share * start_score,
        usd=paid_h * usd_per_hour + share * usd_per_start,
        kwh=kwh,
        gco2e=kwh * menu.tariff.gco2e_at(slot, row),
        work=work.astype(float),
        living=living,
    )


def trim_excess_work(menu: JobMenu, whole: JobSchedule) -> JobSchedule:
    """Return the schedule less each stage's excess work, as far as runs may end earlier."""
    surplus = (whole.work - menu.work).tolist()
    floor = (1e-9 * menu.work).tolist()
    if not any(s > f for s, f in zip(surplus, floor, strict=True)):
        return whole
    runs = _runs(whole)
    held = _shortened(menu, whole, runs, surplus, floor)
    kept = [i for run in runs for i in run]
    index = np.array(kept, dtype=np.int64)
    place = menu.positions(whole.row[index])
    return with_costs(
        menu,
        whole.slot[index],
        whole.stage[index],
        place,
        whole.starts[index],
        held[index],
        whole.start_h[index],
        whole.living and bool(kept) and kept[0] == 0,
    )


def _shortened(
    menu: JobMenu,
    whole: JobSchedule,
    runs: list[list[int]],
    surplus: list[float],
    floor: list[float],
) -> Array:
    """The hours held, with ``runs`` cut at their costliest ends until no ``surplus`` is left."""
    units, stage = whole.units.tolist(), whole.stage.tolist()
    score = whole.score + whole.scored_by(menu.charge)
    price = np.where(whole.units > 0, score / np.maximum(whole.units, 1e-300), np.inf).tolist()
    held = whole.held_h.copy()
    ends: list[tuple[float, int]] = []
    listed: set[int] = set()

    def enlist(number: int) -> None:
        if number not in listed and _may_end(menu, stage, runs, number):
            heappush(ends, (-price[runs[number][-1]], number))
            listed.add(number)

    for number in range(len(runs)):
        enlist(number)
    while ends:
        _, number = heappop(ends)
        listed.discard(number)
        i = runs[number][-1]
        own = stage[i]
        if surplus[own] <= floor[own]:
            continue
        if units[i] > surplus[own]:
            held[i] *= 1 - surplus[own] / units[i]
            surplus[own] = 0.0
            continue
        surplus[own] -= units[i]
        runs[number].pop()
        open_run = next((n for n in range(number, -1, -1) if runs[n]), None)
        if open_run is not None:
            enlist(open_run)
    return held


def _runs(whole: JobSchedule) -> list[list[int]]:
    """The places of each gang's slots from its start on, in order."""
    runs: list[list[int]] = []
    before = -2
    for i, (slot, starts) in enumerate(
        zip(whole.slot.tolist(), whole.starts.tolist(), strict=True)
    ):
        if starts or slot != before + 1 or not runs:
            runs.append([])
        runs[-1].append(i)
        before = slot
    return runs


def _may_end(menu: JobMenu, stage: list[int], runs: list[list[int]], number: int) -> bool:
    """Whether a run may end earlier: of a stage that may not pause, only its last one."""
    own = stage[runs[number][-1]]
    if menu.may_pause[own]:
        return True
    after = next((run for run in runs[number + 1 :] if run), None)
    return after is None or stage[after[0]] != own
