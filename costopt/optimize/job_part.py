"""One job as the planner sees it: its demand, and what it could run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from costopt.optimize.cells import GangGroup
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.prune import StageConfiguration


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of a plan. ``cells`` are the (option number, slot) to consider, None for all."""

    demand: Demand
    table: ConfigurationTable
    options: list[StageConfiguration]
    cells: Collection[tuple[int, int]] | None = None

    def group(self, option: StageConfiguration) -> GangGroup:
        """The stage and the gang of an option, whatever its power cap."""
        return option.stage, int(self.table.gang[option.row])

    def units_per_hour(self, option: StageConfiguration) -> float:
        """Expected work of a paid hour of the option's row in its stage."""
        table, row = self.table, option.row
        return float(table.paid_units_per_hour[row] * table.pace[option.stage, row])

    def left_share(self, row: int) -> float:
        """What is left of the living gang's start."""
        return min(1.0, self.demand.starting_h / max(float(self.table.start_h[row]), 1e-12))
