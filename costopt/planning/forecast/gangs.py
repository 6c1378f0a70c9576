"""The gangs among which a forecast's policy chooses: of each pool the one that it would use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.domain.checkpoint_interval import LOSS_BUDGET_S
from costopt.domain.market import Offer
from costopt.domain.notices import NoticePeriod
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


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows of a table, the first so many of them ``interruptible``."""

    rows: tuple[int, ...]
    interruptible: int


def choose_rows(table: ConfigurationTable, demand: Demand) -> Choice | None:
    """Return the gangs that a policy uses, from the configurations that it allows: the cheapest
    interruptible and the cheapest uninterruptible ones.

    None where gangs differ in size or speed: which of them a strategy chooses depends on the time
    that is left, which ``run_policy`` does not know.
    """
    work_h = single_work_units(table, demand) / table.speed / 3600
    usable = (table.offer >= 0) & np.isfinite(work_h) & (usable_h(table, demand) > 0)
    usable &= ~table.firm | table.now
    if not usable.any() or work_h[usable].max() > ALIKE * work_h[usable].min():
        return None
    if len(np.unique(table.nodes[usable])) > 1:
        return None
    score = table.score_per_hour * work_h + table.start_score
    order = np.argsort(score, kind="stable")
    shaky, firm = (order[(usable & kind)[order]] for kind in (~table.firm, table.firm))
    chosen = shaky[:MAX_POOLS].tolist()
    return Choice((*chosen, *firm[:MAX_FIRM].tolist()), len(chosen))


def build_gangs(
    table: ConfigurationTable,
    demand: Demand,
    choice: Choice,
    notice_s: NoticePeriod,
    speed_draws: Array,
    *,
    begun: bool,
) -> Gangs:
    """Return the figures of the rows; ``begun``: the first start restores a checkpoint, too.

    ``speed_draws`` are standard normal, shape (samples,).
    """
    rows = np.array(choice.rows, dtype=np.int64)
    offers = tuple(table.offers[number] for number in table.offer[rows])
    noticed = _noticed(offers, demand, table.save_s[rows], notice_s)
    risky_s = table.interval_s[rows]
    stated = demand.job.checkpoint.interval_s is not None
    # As the engine chooses it: what is saved on notice need not be saved before.
    interval_s = np.where(noticed & (not stated), np.maximum(risky_s, LOSS_BUDGET_S), risky_s)
    speed = within(table.speed[rows], table.speed_low[rows], table.speed_high[rows], speed_draws)
    speed = np.maximum(speed, 0.01 * table.speed[rows][:, None])
    saving = (interval_s + table.save_s[rows]) / interval_s
    work_h = (single_work_units(table, demand)[rows] * saving)[:, None] / speed / 3600
    restart_h = table.billed_startup_h[rows]
    restore_h = 0.0 if begun else (demand.job.overhead_s - demand.job.startup_s) / 3600
    moving = table.moving_usd_per_hour[rows]
    return Gangs(
        offers=offers,
        interruptible=choice.interruptible,
        nodes=table.nodes[rows],
        work_h=work_h,
        start_h=np.maximum(restart_h - restore_h, 0.0),
        restart_h=restart_h,
        lost_h=np.where(noticed, table.save_s[rows], interval_s / 2) / 3600,
        interval_h=interval_s / 3600,
        risky_interval_h=risky_s / 3600,
        save_h=table.save_s[rows] / 3600,
        price_usd=table.usd_per_hour[rows] - moving,
        other_usd=moving,
        start_usd=table.transfer_usd[rows],
        busy_kw=table.busy_kw[rows],
        idle_kw=table.idle_kw[rows],
        gco2e_per_kwh=table.gco2e_per_kwh[rows],
        power_error=table.power_error[rows],
    )


def _noticed(
    offers: Sequence[Offer], demand: Demand, save_s: Array, notice_s: NoticePeriod
) -> NDArray[np.bool_]:
    """Whether the notice of an interruption is long enough to save on."""
    durable_s = save_s + demand.job.checkpoint.durable_s - demand.job.checkpoint.save_s
    return np.array([notice_s(offer.pool) for offer in offers]) > durable_s
