"""From the sizes of a round to gangs on nodes: what changes once every gang has its place."""

from __future__ import annotations

import numpy as np

from costopt.optimize.rounds.gangs import Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.placement import Placement


def place_round(
    placement: Placement, ids: Ints, jobs: RoundJobs, sizes: Ints, protected_s: float
) -> dict[int, int]:
    """Place the gangs that change. Return the GPUs of each job that restarts or stops, by its id.

    The placement knows the job of each row by its id in ``ids``. Gangs younger than ``protected_s``
    are not moved to make room, unless for a job that is behind; others are, also for a gang that
    grows towards what its job asked for. A job that finds no room keeps what it has, or starts on
    the largest of its smaller gangs that does.
    """
    held, gangs = jobs.held, jobs.gangs
    chosen = np.flatnonzero(sizes != held)
    if not len(chosen):
        return {}
    fixed = frozenset(ids[(jobs.held_s < protected_s) & (held > 0)].tolist())
    first = frozenset(ids[jobs.is_behind].tolist())
    row_of = {int(ids[row]): int(row) for row in chosen}
    wanted = {job: int(sizes[row]) for job, row in row_of.items()}
    asked, _ = gangs.pick(gangs.asked)
    short = frozenset(ids[held < asked].tolist())
    refused, moved = placement.change(wanted.items(), fixed, first | short)
    for job in sorted(refused):
        if job in first:
            unplaced, also = placement.change([(job, wanted[job])], first, first)
            moved |= also
            if not unplaced:
                continue
        del wanted[job]
        row = row_of[job]
        if held[row]:
            continue
        for gpus in reversed([int(each) for each in gangs.gpus[row, : gangs.asked[row]]]):
            unplaced, also = placement.change([(job, gpus)], fixed)
            moved |= also
            if not unplaced:
                wanted[job] = gpus
                break
    also_moved = np.flatnonzero(np.isin(ids, list(moved - wanted.keys()))) if moved else ()
    return wanted | {int(ids[row]): int(held[row]) for row in also_moved}
