"""Which configurations can appear in a cheap plan: the lower convex hull of work against score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand, Stage
from costopt.optimize.rates import Array, base_units

KEEP_ALL = 24
"""Tables no larger than this are solved whole."""

SINGLES = 8
"""How many of the cheapest configurations that do the whole job alone are kept."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageConfiguration:
    """An option of a stage: configuration ``row`` of the job's table, used for stage ``stage``."""

    stage: int
    row: int


def lower_hull(work: Array, cost: Array) -> Rows:
    """Return the rows on the lower convex hull of (work, cost) and (0, 0), by ascending work.

    ``work`` and ``cost`` have shape (rows,). A mix of hull points over time is at least as cheap as
    any other point at the same work rate.
    """
    hull: list[int] = []
    for row in _undominated(work, cost).tolist():
        while hull:
            w0, c0 = (work[hull[-2]], cost[hull[-2]]) if len(hull) > 1 else (0.0, 0.0)
            last = hull[-1]
            if (cost[last] - c0) * (work[row] - w0) < (cost[row] - c0) * (work[last] - w0):
                break
            hull.pop()
        hull.append(row)
    return np.array(hull, dtype=np.int64)


def _undominated(work: Array, cost: Array) -> Rows:
    """Rows that no other beats in both work and cost, by ascending work."""
    order = np.lexsort((-cost, work))[::-1]
    cheapest_so_far = np.minimum.accumulate(cost[order])
    better = np.ones(len(order), dtype=bool)
    better[1:] = cost[order][1:] < cheapest_so_far[:-1]
    return order[better][::-1]


def single_work_units(table: ConfigurationTable, demand: Demand) -> Array:
    """Return the whole job in units at each configuration's own speed, shape (rows,).

    It is ∞ where the configuration cannot run one of the stages.
    """
    return base_units(demand.stage_units, table.pace)


def single_score(table: ConfigurationTable, demand: Demand) -> Array:
    """Return the objective of the whole job on each configuration alone, shape (rows,).

    One start is included; of the living gang, the remaining part of its start.
    """
    start = np.where(table.running, demand.starting_h / np.maximum(table.start_h, 1e-12), 1.0)
    hours = single_work_units(table, demand) / table.paid_units_per_hour
    return table.score_per_hour * hours + table.start_score * start


def single_held_h(table: ConfigurationTable, demand: Demand) -> Array:
    """Return the calendar hours to hold for the whole job on each row alone, shape (rows,)."""
    start = np.where(table.running, demand.starting_h, table.start_h)
    return table.stretch * single_work_units(table, demand) / table.paid_units_per_hour + start


def usable_h(table: ConfigurationTable, demand: Demand) -> Array:
    """Return the hours of the job's time in which each configuration can be used, shape (rows,).

    They are not above 0 where the two do not overlap.
    """
    hours: Array = np.minimum(table.until_h, demand.due_h) - np.maximum(
        table.from_h, demand.release_h
    )
    return hours


def stage_configurations(
    table: ConfigurationTable, demand: Demand, scarce: Sequence[Array] = ()
) -> list[StageConfiguration]:
    """Return the options to consider for each stage: few, but with the cheap mixes among them.

    ``scarce`` are figures of a paid hour, shape (rows,), that something besides budgets limits.
    """
    budget = demand.job.budget
    limited = [table.usd_per_hour] * (budget.max_usd is not None)
    limited += [table.kwh_per_hour] * (budget.max_kwh is not None)
    costs = _costs(table, (*limited, *scarce))
    options: list[StageConfiguration] = []
    for number, stage in enumerate(demand.stages):
        fits = can_run_stage(table, stage, number)
        rows = np.flatnonzero(fits)
        kept = rows if len(rows) <= KEEP_ALL else _kept(table, demand, number, rows, costs)
        options.extend(StageConfiguration(number, row) for row in sorted(kept.tolist()))
    return options


def can_run_stage(table: ConfigurationTable, stage: Stage, number: int) -> NDArray[np.bool_]:
    """Return which rows can run the stage of this number, shape (rows,)."""
    sizes = (table.nodes >= stage.min_nodes) & (table.nodes <= stage.max_nodes)
    fits: NDArray[np.bool_] = sizes & (table.pace[number] > 0)
    return fits


def _kept(
    table: ConfigurationTable, demand: Demand, stage: int, rows: Rows, costs: Sequence[Array]
) -> Rows:
    kept = [rows[table.running[rows]], _best_singles(table, demand, rows)]
    work = table.paid_units_per_hour * table.pace[stage] / table.stretch
    subsets = [rows] if table.now.all() else [rows, rows[table.now[rows]]]
    for subset in subsets:
        for cost_per_paid_hour in costs:
            cost = cost_per_paid_hour / table.stretch
            kept.append(subset[lower_hull(work[subset], cost[subset])])
    return np.unique(np.concatenate(kept))


def _costs(table: ConfigurationTable, scarce: Sequence[Array]) -> list[Array]:
    """The objective, and mixes that lean towards what is scarce."""
    costs = [table.score_per_hour]
    for figure in scarce:
        costs.extend([*_leaning(table, figure), figure])
    return costs


def _leaning(table: ConfigurationTable, scarce: Array) -> list[Array]:
    """The objective with a price on what is scarce: what a limit on it would make optimal."""
    if not len(table):
        return []
    scale = float(np.median(table.score_per_hour) / max(float(np.median(scarce)), 1e-12))
    return [table.score_per_hour + weight * scale * scarce for weight in (0.3, 1.0, 3.0)]


def _best_singles(table: ConfigurationTable, demand: Demand, rows: Rows) -> Rows:
    in_time = rows[(single_held_h(table, demand) <= usable_h(table, demand))[rows]]
    best = np.argsort(single_score(table, demand)[in_time], kind="stable")[:SINGLES]
    return in_time[best]
