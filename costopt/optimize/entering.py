"""At which node price a pool that was not chosen would enter the plan.

A plan that uses the pool's configuration q for x hours costs A·p + B, where p is its node price and
A = w_usd · nodes · (x + paid_start_h). It is as good as the plan that was made at
p = p0 + (plan − cost at p0) / A. Looked at are q by itself, where that ends in time, and q with one
other configuration j so that both the work and the time are used up:
    units_q·x_q + units_j·x_j = W,   stretch_q·x_q + stretch_j·x_j = L − δ_q − δ_j
At constant prices the cheapest plan of one stage without budgets is of one of these two kinds (a
linear program of two rows has two basic variables), so that the highest such p is where the reduced
cost of the pool, its starts included, is 0. With several stages, budgets, dated capacity or prices
that move only q by itself is looked at: below that price the pool certainly enters. All other
prices stay; forecasts of the pool's price move with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.prune import (
    can_run_stage,
    single_held_h,
    single_score,
    single_work_units,
    stage_configurations,
    usable_h,
)
from costopt.optimize.rates import Array

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EnteringPrice:
    """The table and the demand as solved, and the plan's objective; ``partners`` are the j."""

    table: ConfigurationTable
    demand: Demand
    objective: Objective
    plan_score_usd: float
    fits: NDArray[np.bool_]
    in_time: NDArray[np.bool_]
    alone_usd: Array
    partners: Rows

    @classmethod
    def of(
        cls,
        table: ConfigurationTable,
        demand: Demand,
        objective: Objective,
        plan_score_usd: float,
        *,
        mixes: bool = True,
    ) -> Self:
        """``mixes`` False looks at single configurations only, as where prices move."""
        fits = np.ones(len(table), dtype=bool)
        for number, stage in enumerate(demand.stages):
            fits &= can_run_stage(table, stage, number)
        undated = (table.from_h <= demand.release_h) & (table.until_h >= demand.due_h) & table.now
        budget = demand.job.budget
        simple = len(demand.stages) == 1 and budget.max_usd is None and budget.max_kwh is None
        rows = (
            [option.row for option in stage_configurations(table, demand)]
            if mixes and simple
            else []
        )
        return cls(
            table,
            demand,
            objective,
            plan_score_usd,
            fits,
            single_held_h(table, demand) <= usable_h(table, demand),
            single_score(table, demand),
            np.array([row for row in rows if undated[row]], dtype=np.int64),
        )

    def usd_per_hour(self, offer: int) -> float | None:
        """The highest node price at which the offer of this number is in a plan as good.

        None where there is no such price above 0.
        """
        own = np.flatnonzero((self.table.offer == offer) & self.fits)
        if not len(own) or self.objective.usd <= 0:
            return None
        first = int(own[0])
        node_usd = self.table.usd_per_hour[first] - self.table.moving_usd_per_hour[first]
        present = float(node_usd) / int(self.table.nodes[first])
        found = [*self._single(own), *(x for row in own.tolist() for x in self._mixed(row, offer))]
        price = present + max(found, default=-np.inf)
        return price if price > 0 else None

    def _single(self, rows: Rows) -> list[float]:
        """How much dearer a node may be, of the rows that end in time by themselves."""
        table, rows = self.table, rows[self.in_time[rows]]
        hours = single_work_units(table, self.demand)[rows] / table.paid_units_per_hour[rows]
        more = self._more(rows, hours, self.alone_usd[rows])
        return [float(x) for x in more]

    def _mixed(self, row: int, offer: int) -> list[float]:
        """The same of mixes with each partner in another pool."""
        table, demand = self.table, self.demand
        others = self.partners[table.offer[self.partners] != offer]
        mine = float(table.paid_units_per_hour[row] * table.pace[0, row])
        units = table.paid_units_per_hour[others] * table.pace[0, others]
        left_h = demand.hours_left - table.start_h[row] - table.start_h[others]
        determinant = mine * table.stretch[others] - units * table.stretch[row]
        with np.errstate(divide="ignore", invalid="ignore"):
            mine_h = (demand.units * table.stretch[others] - units * left_h) / determinant
            other_h = (mine * left_h - demand.units * table.stretch[row]) / determinant
        real = np.isfinite(mine_h) & np.isfinite(other_h) & (mine_h > 0) & (other_h > 0)
        mine_h, other_h, others = mine_h[real], other_h[real], others[real]
        cost = mine_h * table.score_per_hour[row] + table.start_score[row]
        cost = cost + other_h * table.score_per_hour[others] + table.start_score[others]
        return [float(x) for x in self._more(np.full(len(others), row), mine_h, cost)]

    def _more(self, rows: Rows, hours: Array, cost: Array) -> Array:
        table = self.table
        slope = self.objective.usd * table.nodes[rows] * (hours + table.billed_startup_h[rows])
        more: Array = (self.plan_score_usd - cost) / np.maximum(slope, 1e-300)
        return more
