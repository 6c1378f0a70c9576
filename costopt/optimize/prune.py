"""Which configurations can appear in a cheap plan: the lower convex hull of work against score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.rates import Array

KEEP_ALL = 24
"""Tables no larger than this are solved whole."""

SINGLES = 8
"""How many of the cheapest configurations that do the whole job alone are kept."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Option:
    """Configuration ``row`` of the job's table, used for ``stage``."""

    stage: int
    row: int


def lower_hull(work: Array, cost: Array) -> Rows:
    """Rows on the lower convex hull of (work, cost) with (0, 0), by ascending work.

    A time mix of hull points is at least as cheap as any other point at the same work rate.
    """
    order = np.lexsort((cost, work))
    hull: list[int] = []
    for row in order.tolist():
        while hull and cost[row] <= cost[hull[-1]] and work[row] >= work[hull[-1]]:
            hull.pop()
        while hull:
            w0, c0 = (work[hull[-2]], cost[hull[-2]]) if len(hull) > 1 else (0.0, 0.0)
            last = hull[-1]
            if (cost[last] - c0) * (work[row] - w0) < (cost[row] - c0) * (work[last] - w0):
                break
            hull.pop()
        hull.append(row)
    return np.array(hull, dtype=np.int64)


def alone_score(table: ConfigurationTable, demand: Demand) -> Array:
    """The objective of the whole job on each configuration by itself, one start included."""
    start = np.where(table.running, demand.starting_h / max(_start_h(demand), 1e-12), 1.0)
    hours = demand.units / table.paid_units_per_hour
    return table.score_per_hour * hours + table.start_score * start


def alone_held_h(table: ConfigurationTable, demand: Demand) -> Array:
    """Calendar hours to hold for the whole job on each configuration by itself."""
    start = np.where(table.running, demand.starting_h, _start_h(demand))
    return table.stretch * demand.units / table.paid_units_per_hour + start


def options_of(table: ConfigurationTable, demand: Demand, *, layers: int = 1) -> list[Option]:
    """The options of each stage; ``layers`` > 1 keeps near-hull ones for jobs that compete."""
    options: list[Option] = []
    for number, stage in enumerate(demand.stages):
        fits = (table.nodes >= stage.min_nodes) & (table.nodes <= stage.max_nodes)
        rows = np.flatnonzero(fits)
        kept = rows if len(rows) <= KEEP_ALL else _kept(table, demand, rows, layers)
        options.extend(Option(number, row) for row in sorted(kept.tolist()))
    return options


def _kept(table: ConfigurationTable, demand: Demand, rows: Rows, layers: int) -> Rows:
    kept = [rows[table.running[rows]], _best_singles(table, demand, rows)]
    work = table.paid_units_per_hour / table.stretch
    for subset in (rows, rows[table.now[rows]]):
        for cost_per_paid_hour in _costs(table, demand):
            cost = cost_per_paid_hour / table.stretch
            left = subset
            for _ in range(layers):
                hull = left[lower_hull(work[left], cost[left])] if len(left) else left
                kept.append(hull)
                left = np.setdiff1d(left, hull)
    return np.unique(np.concatenate(kept))


def _costs(table: ConfigurationTable, demand: Demand) -> list[Array]:
    """The objective; where the job has a budget, also mixes that lean towards what it limits."""
    costs = [table.score_per_hour]
    for limit, per_hour in (
        (demand.job.budget.max_usd, table.usd_per_hour),
        (demand.job.budget.max_kwh, table.kwh_per_hour),
    ):
        if limit is not None and len(per_hour):
            scale = float(np.median(table.score_per_hour) / max(float(np.median(per_hour)), 1e-12))
            costs.extend(
                table.score_per_hour + weight * scale * per_hour for weight in (0.3, 1.0, 3.0)
            )
            costs.append(per_hour)
    return costs


def _best_singles(table: ConfigurationTable, demand: Demand, rows: Rows) -> Rows:
    in_time = rows[alone_held_h(table, demand)[rows] <= demand.hours_left]
    best = np.argsort(alone_score(table, demand)[in_time], kind="stable")[:SINGLES]
    return in_time[best]


def _start_h(demand: Demand) -> float:
    return demand.job.overhead_s / 3600
