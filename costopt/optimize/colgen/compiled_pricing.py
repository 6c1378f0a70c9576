"""The recursion of ``pricing`` compiled by numba: for fleets, where it runs ten thousand times.

Import it only where many paths are to be found: numba takes half a second to load, and some more
when it compiles for the first time on a machine (it caches the result beside this file, or in the
user's cache). ``pricing`` does the same with NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from costopt.optimize.colgen.menu import INFEASIBLE_COST, JobMenu, PricingDuals

EMPTY = np.zeros((1, 1))


def solve_compiled(menu: JobMenu, prices: PricingDuals) -> tuple[float, Any]:
    """Return the best path's value and its steps, shape (n, 4).

    The columns of the steps are slot, stage, place in the menu and whether the gang starts.
    """
    shared = EMPTY if prices.shared is None else prices.shared
    tables = _recursion(
        prices.work[:, None] * menu.units,
        menu.units > 0,
        menu.hours,
        menu.pay,
        shared,
        prices.shared is not None,
        menu.start_score,
        menu.start_h,
        np.append(menu.first, len(menu.rows)),
        menu.may_pause,
    )
    run, row, loss, idle, begin, begun = tables
    value, stage, gang = float(idle[0, 0]), 0, -1
    if menu.live >= 0:
        share = min(1.0, menu.starting_h / max(float(menu.start_h[menu.live]), 1e-12))
        for q in range(run.shape[1]):
            kept = float(run[0, q, menu.live] - share * loss[q, menu.live])
            if kept > value:
                value, stage, gang = kept, q, menu.live
    return value, _walk(run, row, idle, begin, begun, menu.may_pause, stage, gang)


@njit(cache=True)
def _recursion(  # type: ignore[no-untyped-def]  # noqa: C901
    worth, able, hours, pay, shared, priced, start, start_h, first, may_pause
):
    """Values of running, waiting and beginning by slot, and what is best where.

    ``loss`` is of starts in the first slot, for the gang that lives.
    """
    stages, slots, gangs = worth.shape[0], len(hours), len(first) - 1
    run = np.full((slots + 1, stages, gangs), -INFEASIBLE_COST)
    row = np.zeros((slots, stages, gangs), dtype=np.int64)
    loss = np.zeros((stages, gangs))
    idle = np.zeros((slots + 1, stages + 1))
    begin = np.full((slots + 1, stages), -INFEASIBLE_COST)
    begun = np.full((slots, stages), -1, dtype=np.int64)
    for t in range(slots - 1, -1, -1):
        h = max(hours[t], 1e-12)
        if hours[t] <= 0:
            # Nothing runs where the job has no time: its value is to wait.
            for q in range(stages - 1, -1, -1):
                idle[t, q] = max(idle[t + 1, q], idle[t, q + 1])
            continue
        for q in range(stages - 1, -1, -1):
            stay = idle[t + 1, q] if may_pause[q] else begin[t + 1, q]
            leave = max(stay, idle[t + 1, q + 1])
            for g in range(gangs):
                reward, place, extra = -INFEASIBLE_COST, first[g], 0.0
                for r in range(first[g], first[g + 1]):
                    if able[q, r]:
                        paid = shared[t, r] if priced else 0.0
                        here = worth[q, r] * hours[t] - pay[t, r] - paid
                        if here > reward:
                            reward, place, extra = here, r, paid
                onward = max(run[t + 1, q, g], leave)
                if q + 1 < stages:
                    onward = max(onward, run[t + 1, q + 1, g])
                value = reward + onward
                run[t, q, g] = value
                row[t, q, g] = place
                lost = start[t, g]
                if reward > -INFEASIBLE_COST / 2:
                    lost += start_h[g] * (reward + extra) / h
                if t == 0:
                    loss[q, g] = lost
                if value - lost > begin[t, q]:
                    begin[t, q] = value - lost
                    begun[t, q] = g
            idle[t, q] = max(idle[t + 1, q], begin[t, q], idle[t, q + 1])
    return run, row, loss, idle, begin, begun


@njit(cache=True)
def _walk(run, row, idle, begin, begun, may_pause, q, gang):  # type: ignore[no-untyped-def]  # noqa: C901
    """(n, 4) steps of the best path from the first slot, in stage q with this gang or with none."""
    slots, stages = row.shape[0], row.shape[1]
    steps = np.zeros((slots, 4), dtype=np.int64)
    count = 0
    must_begin = False
    for t in range(slots):
        starts = 0
        if gang < 0:
            while q < stages:
                value = begin[t, q] if must_begin else idle[t, q]
                if value <= 0 and not must_begin:
                    q = stages
                    break
                if begin[t, q] >= value:
                    gang = begun[t, q]
                    break
                if idle[t + 1, q] >= value:
                    break
                q += 1
                must_begin = False
            if q == stages:
                break
            if gang < 0:
                continue
            starts = 1
        steps[count, 0], steps[count, 1] = t, q
        steps[count, 2], steps[count, 3] = row[t, q, gang], starts
        count += 1
        stage, value = q, run[t + 1, q, gang]
        if q + 1 < stages and run[t + 1, q + 1, gang] > value:
            stage, value = q + 1, run[t + 1, q + 1, gang]
        stay = idle[t + 1, q] if may_pause[q] else begin[t + 1, q]
        later = idle[t + 1, q + 1]
        if value >= stay and value >= later and value > -INFEASIBLE_COST / 2:
            q, must_begin = stage, False
        else:
            must_begin = stay >= later and not may_pause[q]
            gang = -1
            if stay < later:
                q += 1
    return steps[:count]
