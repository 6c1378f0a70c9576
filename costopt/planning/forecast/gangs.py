"""The gangs among which a forecast's policy chooses: of each pool the one that it would use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import Offer
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.pruning import single_work_units, usable_h
from costopt.optimize.random_draws import within
from costopt.optimize.rates import Array

MAX_POOLS = 12
"""Of more than these, the cheapest, one is nearly always up."""

MAX_FIRM = 4

ALIKE = 1.02
"""Gangs of which none takes more than this many times as long as another are alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Gangs by row, shape (gangs,), the interruptible ones first; figures are of the whole gang.

    ``work_h`` are the hours that the rest of the job takes with its saves, shape (gangs, samples).
    ``start_h`` and ``restart_h`` are the paid hours of the first start and of a later one,
    ``lost_h`` what an interruption takes of the hours of training, ``interval_h`` and ``save_h``
    the hours between saves and of one, ``risky_interval_h`` those between saves without a notice.
    ``price_usd`` an hour moves with the pool's price, ``other_usd`` an hour does not,
    ``start_usd`` is paid at each start.
    """

    offers: tuple[Offer, ...]
    interruptible: int
    nodes: NDArray[np.int64]
    work_h: Array
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


def build_gangs(
    table: ConfigurationTable,
    demand: Demand,
    speed_draws: Array,
) -> Gangs | None:
    """Return the gangs that a policy uses, from the configurations that it allows: the cheapest
    interruptible and the cheapest uninterruptible ones.

    None where gangs differ in size or speed: which of them a strategy chooses depends on the time
    that is left, which ``run_policy`` does not know. ``speed_draws`` are standard normal, shape
    (samples,).
    """
    units = single_work_units(table, demand)
    usable = (table.offer >= 0) & np.isfinite(units) & (usable_h(table, demand) > 0)
    usable &= ~table.firm | table.now
    work_h = units / table.speed / 3600
    if not _are_alike(work_h[usable], table.nodes[usable]):
        return None
    score = table.score_per_hour * work_h + table.start_score
    order = np.argsort(score, kind="stable")
    shaky, firm = (order[(usable & kind)[order]] for kind in (~table.firm, table.firm))
    rows = np.concatenate((shaky[:MAX_POOLS], firm[:MAX_FIRM]))
    offers = tuple(table.offers[number] for number in table.offer[rows])
    noticed, interval_s = table.noticed[rows], table.interval_s[rows]
    speed = within(table.speed[rows], table.speed_low[rows], table.speed_high[rows], speed_draws)
    speed = np.maximum(speed, 0.01 * table.speed[rows][:, None])
    saving = (interval_s + table.save_s[rows]) / interval_s
    start_h = table.billed_startup_h[rows]
    moving = table.moving_usd_per_hour[rows]
    return Gangs(
        offers=offers,
        interruptible=len(shaky[:MAX_POOLS]),
        nodes=table.nodes[rows],
        work_h=(units[rows] * saving)[:, None] / speed / 3600,
        start_h=start_h,
        restart_h=start_h + table.restore_h[rows],
        lost_h=np.where(noticed, table.save_s[rows], interval_s / 2) / 3600,
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


def _are_alike(work_h: Array, nodes: NDArray[np.int64]) -> bool:
    """Return whether there are gangs, all of one size and about as fast."""
    return len(np.unique(nodes)) == 1 and bool(work_h.max() <= ALIKE * work_h.min())
