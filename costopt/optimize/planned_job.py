"""One job as the planner sees it: its demand, the configurations it could run and its variables.

The variables are those of the mixed-integer program, by option or gang and slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.pruning import StageConfiguration


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of a plan. ``cells`` are the (option number, slot) to consider, None for all."""

    demand: Demand
    table: ConfigurationTable
    options: list[StageConfiguration]
    cells: Collection[tuple[int, int]] | None = None

    def group(self, option: StageConfiguration) -> GangGroup:
        """Return the stage and the gang of an option, whatever its power cap."""
        return option.stage, int(self.table.gang[option.row])

    def units_per_hour(self, option: StageConfiguration) -> float:
        """Return the expected work, in units, of a paid hour of the option's row in its stage."""
        table, row = self.table, option.row
        return float(table.paid_units_per_hour[row] * table.pace[option.stage, row])

    def left_share(self, row: int) -> float:
        """Return the remaining share of the living gang's start-up."""
        return min(1.0, self.demand.starting_h / max(float(self.table.start_h[row]), 1e-12))


GangGroup = tuple[int, int]
"""(stage, gang)."""


@dataclass(slots=True)
class ModelVariables:
    """Numbers of the variables x by (option, slot), u and k by (group, slot).

    x counts in shares of ``hours``, its most; ``members`` are the options of a group that the slot
    allows; ``living`` are the groups that run when the plan is made.
    """

    x: dict[tuple[int, int], int] = field(default_factory=dict)
    hours: dict[tuple[int, int], float] = field(default_factory=dict)
    u: dict[tuple[GangGroup, int], int] = field(default_factory=dict)
    k: dict[tuple[GangGroup, int], int] = field(default_factory=dict)
    living: set[tuple[GangGroup, int]] = field(default_factory=set)
    members: dict[tuple[GangGroup, int], list[int]] = field(default_factory=dict)

    def before(self, group: GangGroup, t: int) -> Iterator[GangGroup]:
        """Yield the groups whose gang can run on into slot t: of its stage or the one before."""
        stage, gang = group
        return ((s, gang) for s in (stage, stage - 1) if ((s, gang), t - 1) in self.u)
