"""The gangs among which a forecast's policy chooses: pools, and the sizes that pay in each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.domain.array import max_task_s
from costopt.domain.market import Offer
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.pruning import Rows, single_work_units, usable_h
from costopt.optimize.random_draws import within
from costopt.optimize.rates import Array
from costopt.strategies.gang_options import unsaved_s

MAX_POOLS = 12
"""Of more than these, the cheapest, one is nearly always up."""

MAX_SIZES = 4
"""Gangs of a pool: the smallest, the largest, and those between in about equal ratios."""


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Gangs by row, shape (gangs,), the interruptible ones first; figures are of the whole gang.

    ``present`` is the one that runs now, ``unsaved_h`` what an interruption may take at most of the
    work before a strategy has chosen how often to save. ``pool`` is the number of a gang's pool,
    those of the interruptible ones first. ``work_h`` are the hours that the rest of the job takes
    with its saves, shape (gangs, samples), ``train_h`` as expected and without them. ``start_h``
    and ``restart_h`` are the paid hours of the first start and of a later one, ``lost_h`` what an
    interruption takes of the hours of training, ``interval_h`` and ``save_h`` the hours between
    saves and of one, ``risky_interval_h`` those between saves without a notice. ``price_usd`` an
    hour moves with the pool's price, ``other_usd`` an hour does not, ``start_usd`` is paid at each
    start.
    """

    offers: tuple[Offer, ...]
    interruptible: int
    present: int | None
    unsaved_h: float
    pool: NDArray[np.int64]
    nodes: NDArray[np.int64]
    work_h: Array
    train_h: Array
    start_h: Array
    restart_h: Array
    lost_h: Array
    interval_h: Array
    risky_interval_h: Array
    save_h: Array
    price_usd: Array
    other_usd: Array
    start_usd: Array
    busy_kw: Array
    idle_kw: Array
    gco2e_per_kwh: Array
    power_error: Array

    def interruptible_pools(self) -> tuple[list[Offer], list[int]]:
        """Return the offer of each pool of interruptible gangs, and the nodes of its smallest."""
        spot = self.pool[: self.interruptible]
        rows = [np.flatnonzero(spot == number).tolist() for number in np.unique(spot)]
        nodes = [int(self.nodes[own].min()) for own in rows]
        return [self.offers[own[0]] for own in rows], nodes


def build_gangs(
    table: ConfigurationTable,
    demand: Demand,
    speed_draws: Array,
) -> Gangs | None:
    """Return the gangs that a policy uses, from the configurations that it allows.

    None where there is none, and where phases limit the nodes differently. ``speed_draws`` are
    standard normal, shape (samples,).
    """
    shaky, firm = gang_rows(table, demand)
    rows = np.concatenate([shaky, firm])
    units = single_work_units(table, demand)[rows]
    if not len(rows) or not _allow_the_same(demand, table.nodes[rows]) or np.isinf(units).any():
        return None
    here = np.flatnonzero(table.running[rows])
    numbers = table.offer[rows].tolist()
    pools = list(dict.fromkeys(numbers))
    offers = tuple(table.offers[number] for number in numbers)
    noticed, interval_s = table.noticed[rows], table.interval_s[rows]
    lost_s = np.where(noticed, table.save_s[rows], interval_s / 2)
    if demand.job.array is not None:
        lost_s = np.full(len(rows), max_task_s(demand.job) / 2)
    speed = within(table.speed[rows], table.speed_low[rows], table.speed_high[rows], speed_draws)
    speed = np.maximum(speed, 0.01 * table.speed[rows][:, None])
    saving = (interval_s + table.save_s[rows]) / interval_s
    start_h = table.billed_startup_h[rows]
    moving = table.moving_usd_per_hour[rows]
    return Gangs(
        offers=offers,
        interruptible=len(shaky),
        present=int(here[0]) if len(here) else None,
        unsaved_h=unsaved_s(demand.job.checkpoint) / 3600,
        pool=np.array([pools.index(number) for number in numbers]),
        nodes=table.nodes[rows],
        work_h=(units * saving)[:, None] / speed / 3600,
        train_h=units / table.speed[rows] / 3600,
        start_h=start_h,
        restart_h=start_h + table.restore_h[rows],
        lost_h=lost_s / 3600,
        interval_h=interval_s / 3600,
        risky_interval_h=table.risky_interval_s[rows] / 3600,
        save_h=table.save_s[rows] / 3600,
        price_usd=table.usd_per_hour[rows] - moving,
        other_usd=moving,
        start_usd=table.transfer_usd[rows],
        busy_kw=table.busy_kw[rows],
        idle_kw=table.idle_kw[rows],
        gco2e_per_kwh=table.gco2e_per_kwh[rows],
        power_error=table.power_error[rows],
    )


def gang_rows(table: ConfigurationTable, demand: Demand) -> tuple[Rows, Rows]:
    """Return the rows of the interruptible and of the other gangs among which a strategy chooses.

    Of each of the cheapest interruptible pools they are the sizes that can pay; the others are
    those than which no cheaper one is faster.
    """
    units = single_work_units(table, demand)
    usable = (table.offer >= 0) & (usable_h(table, demand) > 0) & np.isnan(table.cap_w)
    usable &= ~table.firm | table.now | table.running
    whole = usable & np.isfinite(units)
    usable = whole if whole.any() else usable
    work_h = np.where(np.isfinite(units), units, demand.units) / table.speed / 3600
    order = np.argsort(table.score_per_hour * work_h + table.start_score, kind="stable")
    shaky, firm = (order[(usable & kind)[order]] for kind in (~table.firm, table.firm))
    pools = list(dict.fromkeys(table.offer[shaky].tolist()))[:MAX_POOLS]
    sizes = [_sizes(shaky[table.offer[shaky] == pool], work_h) for pool in pools]
    here = np.flatnonzero(usable & table.running)
    shaky = np.unique(np.concatenate([*sizes, here[~table.firm[here]]])).astype(np.int64)
    return shaky, np.unique(np.concatenate([_faster(firm, work_h), here[table.firm[here]]]))


def _allow_the_same(demand: Demand, nodes: NDArray[np.int64]) -> bool:
    """Return whether each phase allows every one of these numbers of nodes."""
    stages, fewest, most = demand.stages, nodes.min(), nodes.max()
    return all(each.min_nodes <= fewest and most <= each.max_nodes for each in stages)


def _faster(rows: Rows, work_h: Array) -> Rows:
    """Return those of the gangs, the cheapest first, that are faster than all before them."""
    least = np.minimum.accumulate(work_h[rows])
    faster: Rows = rows[np.flatnonzero(np.diff(least, prepend=math.inf) < 0)]
    return faster


def _sizes(rows: Rows, work_h: Array) -> Rows:
    """Return a few of a pool's gangs, the cheapest first, that it can pay to choose."""
    rows = _faster(rows, work_h)
    if len(rows) <= MAX_SIZES:
        return rows
    places = np.geomspace(1, len(rows), MAX_SIZES).round().astype(np.int64)
    chosen: Rows = rows[np.unique(places) - 1]
    return chosen
