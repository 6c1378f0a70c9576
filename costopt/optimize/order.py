"""Rows of the mixed-integer program for stages that follow one another."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.optimize.cells import ModelVariables
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.slots import Slot
from costopt.optimize.solver import LinearModel


def add_order(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, slots: Sequence[Slot]
) -> None:
    """A stage begins once the one before it is done, and none goes on once a later one has begun.

    Without the second, a solution that does more than a stage's work may do it after later stages.
    """
    for stage in range(1, len(part.demand.stages)):
        done = _add_done(model, part, cells, stage - 1, len(slots))
        for (group, t), u in cells.u.items():
            if group[0] != stage:
                continue
            model.at_least({done[t]: 1.0, u: -1.0}, 0)
            if (group, t) in cells.k:
                before = {done[t - 1]: 1.0} if t else {}
                model.at_least(before | {cells.k[group, t]: -1.0}, 0)
        _add_end_of_earlier(model, cells, stage, len(slots))


def _add_done(
    model: LinearModel, part: PlannedJob, cells: ModelVariables, stage: int, slots: int
) -> list[int]:
    """By slot, a variable of at most the share of the stage's work that is done by its end.

    Each rests on the one before: sums over all earlier slots would make the rows dense.
    """
    units = part.demand.stages[stage].units
    by_slot: dict[int, dict[int, float]] = {}
    for (o, t), x in cells.x.items():
        option = part.options[o]
        if option.stage == stage:
            share = cells.hours[o, t] * part.units_per_hour(option) / units
            by_slot.setdefault(t, {})[x] = share
    done: list[int] = []
    for t in range(slots):
        here = model.variable(1)
        before = {done[-1]: 1.0} if done else {}
        model.at_least(before | by_slot.get(t, {}) | {here: -1.0}, 0)
        done.append(here)
    return done


def _add_end_of_earlier(model: LinearModel, cells: ModelVariables, stage: int, slots: int) -> None:
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
