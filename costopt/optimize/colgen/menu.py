"""What one job may run in each slot, as arrays, and the dual values at which it is priced.

A menu holds rows of the job's table grouped by gang. T slots, N rows, G gangs (rows of one gang
differ in their power cap and change without a start), Q stages. A gang that runs a whole slot of L
hours is held for L and paid for L / stretch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import Slot, open_hours
from costopt.optimize.zone_spreads import ZoneSpreads

Rows = NDArray[np.int64]

NO_CHARGE = Objective(usd=0.0)
"""What budgets charge on top of the objective where none of them is scarce."""

INFEASIBLE_COST = 1e30
"""The cost of a slot that a row may not use; finite, so that sums of it stay comparable."""


@dataclass(frozen=True, slots=True)
class JobMenu:
    """The rows of a job's table that it may run, in the order of their gangs, with their costs.

    ``rows`` are the table rows; ``gang`` (N,) numbers their gangs from 0 and ``first`` (G,) is
    where each gang begins. ``units`` (Q, N) is expected work of a held hour, 0 where the stage does
    not allow the row; ``pay`` (T, N) is the objective of a whole slot, ``INFEASIBLE_COST`` where it
    is not usable; ``start_score`` (T, G) is that of a start, which takes ``start_h`` (G,) held
    hours. ``live`` is the gang that runs now, −1 for none, with ``starting_h`` left of its start.
    ``may_pause`` (Q,) and ``work`` (Q,) are of the stages.

    ``column`` (N,) is the request's offer of each row, of a spread the first; ``spreads`` are the
    rows of several pools at ``spread_places``, ``spread_column`` the request's offer of each part.
    ``launches`` and ``spread_launches`` are the nodes that the job does not have there already.
    ``compiled`` chooses the compiled recursion for its paths. ``charge`` is what budgets charge:
    ``pay`` and ``start_score`` hold it besides the objective.
    """

    part: PlannedJob
    slots: tuple[Slot, ...]
    hours: Array
    tariff: SlotCosts
    rows: Rows
    gang: NDArray[np.int64]
    first: NDArray[np.int64]
    units: Array
    usable: NDArray[np.bool_]
    pay: Array
    start_score: Array
    start_h: Array
    live: int
    starting_h: float
    may_pause: NDArray[np.bool_]
    work: Array
    nodes: NDArray[np.int64]
    column: NDArray[np.int64]
    spreads: ZoneSpreads
    spread_places: NDArray[np.int64]
    spread_column: NDArray[np.int64]
    launches: NDArray[np.int64]
    spread_launches: NDArray[np.int64]
    compiled: bool = False
    charge: Objective = NO_CHARGE

    @classmethod
    def of(
        cls,
        part: PlannedJob,
        outlook: ForecastTable,
        tariff: SlotCosts,
        rows: Rows,
        *,
        compiled: bool = False,
    ) -> Self:
        """Return the menu of these table rows."""
        table, demand = part.table, part.demand
        rows = rows[np.lexsort((rows, table.gang[rows]))]
        _, first, gang = np.unique(table.gang[rows], return_index=True, return_inverse=True)
        lead = rows[first]
        stages = demand.stages
        live = np.flatnonzero(table.running[lead])
        hours = open_hours(outlook.slots, demand)
        usable = tariff.usable(demand, rows)
        score = tariff.score_per_hour(rows) / table.stretch[rows]
        spreads = table.spread.take(rows[table.offer[rows] < 0])
        return cls(
            part=part,
            compiled=compiled,
            slots=outlook.slots,
            hours=hours,
            tariff=tariff,
            rows=rows,
            gang=gang,
            first=first,
            units=units_per_held_hour(part, rows),
            usable=usable,
            pay=np.where(usable, score * hours[:, None], INFEASIBLE_COST),
            start_score=tariff.start_score(lead),
            start_h=table.start_h[lead],
            live=int(live[0]) if len(live) else -1,
            starting_h=demand.starting_h,
            may_pause=np.array([stage.may_pause for stage in stages], dtype=bool),
            work=np.array([stage.units for stage in stages]),
            nodes=table.nodes[rows],
            column=tariff.column_of(rows),
            spreads=spreads,
            spread_places=np.flatnonzero(table.offer[rows] < 0),
            spread_column=tariff.column[spreads.offer],
            launches=_launches(part, table.first()[rows], table.nodes[rows]),
            spread_launches=_launches(part, spreads.offer, spreads.nodes),
        )

    @property
    def open_slots(self) -> slice:
        """Return the slots from the first that has hours for the job to the last."""
        some = np.flatnonzero(self.hours)
        return slice(int(some[0]), int(some[-1]) + 1) if len(some) else slice(0, 0)

    def positions(self, rows: Rows) -> Rows:
        """Return the positions of these table rows; all of them must be on the menu."""
        order = np.argsort(self.rows, kind="stable")
        return order[np.searchsorted(self.rows[order], rows)]

    def narrowed(self, fits: NDArray[np.bool_]) -> Self:
        """Return the menu without what does not fit; ``fits`` has shape (T, N): slot × row."""
        return replace(
            self, usable=self.usable & fits, pay=np.where(fits, self.pay, INFEASIBLE_COST)
        )

    def charged(self, charge: Objective) -> Self:
        """Return the menu with a charge on top of what it holds."""
        if charge == NO_CHARGE:
            return self
        tariff = self.tariff.scored_by(charge)
        more = tariff.score_per_hour(self.rows) / self.part.table.stretch[self.rows]
        return replace(
            self,
            pay=self.pay + more * self.hours[:, None],
            start_score=self.start_score + tariff.start_score(self.rows[self.first]),
            charge=self.charge.plus(charge, 1.0),
        )

    def window(self, begin: int, end: int, stage: int, live: int) -> Self:
        """Return the menu of the slots from ``begin`` to before ``end`` for one stage alone.

        ``live`` is the gang that comes over from the slot before, with nothing left of its start;
        −1 for none. In the first slot it is the menu's own living gang.
        """
        cut, only = slice(begin, end), slice(stage, stage + 1)
        return replace(
            self,
            slots=self.slots[cut],
            hours=self.hours[cut],
            tariff=self.tariff.at_slots(np.arange(begin, end)),
            units=self.units[only],
            usable=self.usable[cut],
            pay=self.pay[cut],
            start_score=self.start_score[cut],
            live=self.live if begin == 0 else live,
            starting_h=self.starting_h if begin == 0 else 0.0,
            may_pause=self.may_pause[only],
            work=self.work[only],
        )

    def __len__(self) -> int:
        return len(self.rows)


def units_per_held_hour(part: PlannedJob, rows: Rows) -> Array:
    """Return the expected work of a held hour, shape (Q, rows): stage × row.

    It is 0 where the stage does not allow the row.
    """
    table = part.table
    held = table.paid_units_per_hour[rows] / table.stretch[rows]
    nodes = table.nodes[rows]
    return np.array(
        [
            np.where(
                (nodes >= stage.min_nodes) & (nodes <= stage.max_nodes),
                held * table.pace[number][rows],
                0.0,
            )
            for number, stage in enumerate(part.demand.stages)
        ]
    )


def _launches(part: PlannedJob, offers: Rows, nodes: Rows) -> Rows:
    """Nodes beyond those that the job holds in the pool; ``offers`` are numbers of its table."""
    held = part.demand.running
    if not held:
        return nodes
    there = np.array([held.get(offer.pool, 0) for offer in part.table.offers], dtype=np.int64)
    launched: Rows = np.maximum(0, nodes - there[offers])
    return launched


@dataclass(frozen=True, slots=True)
class PricingDuals:
    """The prices at which a job's schedule is sought.

    ``work`` (Q,), by stage, is the price of a unit of work; ``shared`` (T, N), by slot and row of
    the menu, that of what is shared, None for free.
    """

    work: Array
    shared: Array | None = None
