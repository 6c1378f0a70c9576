"""Rows of the mixed-integer program for stages that may not wait for capacity once begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costopt.optimize.cells import ModelVariables
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.slots import Slot
from costopt.optimize.solver import LinearModel


def add_no_pause_rows(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, slots: Sequence[Slot]
) -> None:
    """A stage that may not pause begins once, and leaves no slot unfilled but its last."""
    for number, stage in enumerate(part.demand.stages):
        if stage.may_pause:
            continue
        begins: dict[int, float] = {}
        before: dict[int, float] = {}
        for t in range(len(slots)):
            here = {u: 1.0 for (group, at), u in cells.u.items() if at == t and group[0] == number}
            begun = model.variable(1)
            begins[begun] = 1.0
            model.at_least({begun: 1.0} | _negative(here) | before, 0)
            if before and here:
                both = _negative(here) | _negative(before)
                _add_filled(model, part, cells, slots[t - 1], number, t - 1, both)
            before = here
        model.at_most(begins, 1)


def _add_filled(
    model: LinearModel,
    part: PlannedJob,
    cells: ModelVariables,
    slot: Slot,
    stage: int,
    t: int,
    both: dict[int, float],
) -> None:
    """The slot is held to its end where the stage is used in it and in the next one."""
    hours = slot.hours_of(part.demand)
    terms = {i: a * hours for i, a in both.items()}
    for (o, at), x in cells.x.items():
        if at == t and part.options[o].stage == stage:
            terms[x] = float(part.table.stretch[part.options[o].row]) * cells.hours[o, at]
    for (group, at), u in cells.u.items():
        if at != t or group[0] != stage:
            continue
        row = part.options[cells.members[group, at][0]].row
        delta = min(float(part.table.start_h[row]), hours)
        terms[u] = terms.get(u, 0.0) + delta
        if (group, at) in cells.k:
            left_h = part.demand.starting_h if (group, at) in cells.living else 0.0
            terms[cells.k[group, at]] = -(delta - min(left_h, delta))
    model.at_least(terms, -hours - 1e-9)


def _negative(terms: Mapping[int, float]) -> dict[int, float]:
    return {variable: -factor for variable, factor in terms.items()}
