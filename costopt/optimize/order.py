"""Rows of the mixed-integer program for stages that follow one another."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.optimize.cells import Cells
from costopt.optimize.job_part import JobPart
from costopt.optimize.slots import Slot
from costopt.optimize.solver import LinearModel


def add_order(model: LinearModel, part: JobPart, cells: Cells, slots: Sequence[Slot]) -> None:
    """A stage begins once the one before it is done, and none goes on once a later one has begun.

    Without the second, a solution that does more than a stage's work may do it after later stages.
    """
    for (group, t), u in cells.u.items():
        if group[0] == 0:
            continue
        model.at_least(_done(part, cells, group[0] - 1, t) | {u: -1.0}, 0)
        if (group, t) in cells.k:
            before = _done(part, cells, group[0] - 1, t - 1)
            model.at_least(before | {cells.k[group, t]: -1.0}, 0)
    for stage in range(1, len(part.demand.stages)):
        _add_end_of_earlier(model, cells, stage, len(slots))


def _add_end_of_earlier(model: LinearModel, cells: Cells, stage: int, slots: int) -> None:
    """``begun`` is at least every use of this stage or a later one in the slots before."""
    begun = model.variable(1)
    for t in range(1, slots):
        later = [u for (group, at), u in cells.u.items() if at == t - 1 and group[0] >= stage]
        earlier = [u for (group, at), u in cells.u.items() if at == t and group[0] == stage - 1]
        if later:
            before, begun = begun, model.variable(1)
            for variable in (before, *later):
                model.at_least({begun: 1.0, variable: -1.0}, 0)
        for u in earlier:
            model.at_most({u: 1.0, begun: 1.0}, 1)


def _done(part: JobPart, cells: Cells, stage: int, t: int) -> dict[int, float]:
    """The share of a stage's work that is done by the end of slot t, as a sum."""
    units = part.demand.stages[stage].units
    return {
        x: cells.hours[o, at] * part.units_per_hour(part.options[o]) / units
        for (o, at), x in cells.x.items()
        if at <= t and part.options[o].stage == stage
    }
