"""What each job runs in the solved program, by slot and option."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.optimize.cells import GangGroup, ModelVariables
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.prune import StageConfiguration

Values = tuple[float, ...]
"""The solved value of each variable, by its number."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """An option in a slot, as solved: hours of work, whether its gang starts there or runs on."""

    option: StageConfiguration
    slot: int
    hours: float
    carried_in: bool
    carried_out: bool


def uses_of(part: PlannedJob, cells: ModelVariables, values: Values) -> list[SlotUse]:
    """The options that the job uses, by slot."""
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
