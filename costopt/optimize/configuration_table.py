"""The configuration table of a job: prices, power, hazards, start-up costs and speeds by row.

The terms of the rows are everything but the speeds. They depend on the job only by its overhead,
its saves, what it fetches and what it may use, so that jobs that are alike in these share the
terms, arrays and all; the table adds the job's speeds and the figures derived from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Policy
from costopt.optimize.any_pool import share_of_any
from costopt.optimize.configurations import (
    ConfigurationColumns,
    ConfigurationRows,
    ConfigurationTable,
    fits_available_nodes,
    gang_busy_kw,
    gang_hazard,
    gang_max,
    gang_sum,
    is_energy_saving,
    power_cap_w,
    scored,
)
from costopt.optimize.demand import Demand
from costopt.optimize.gang_times import GangTimes
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.rates import (
    Array,
    base_units,
    intervals_s,
    mean_square_loss_s2,
    paid_to_useful_ratio,
    quantile_weight,
    towards,
)
from costopt.optimize.request import PlanRequest
from costopt.optimize.speeds import ConfigurationSpeeds, DistinctGangs, speeds_of
from costopt.optimize.zone_spreads import Mask


@dataclass(frozen=True, slots=True)
class StartupCosts:
    """What a start and a save take, besides the price of the nodes.

    ``times`` are by distinct gang. ``hours`` and ``usd`` of a start's transfer, ``save_usd`` of a
    save's, ``zone_usd`` of its copies in another zone, ``node_usd`` of a new node's, ``hour_usd``
    and ``node_hour_usd`` of storage (see ``TransferCosts``) are by offer, shape (offers,).
    """

    times: GangTimes
    hours: Array
    usd: Array
    save_usd: Array
    node_usd: Array
    hour_usd: Array
    node_hour_usd: Array
    zone_usd: Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConfigurationTerms(ConfigurationColumns):
    """Everything about configurations except their speeds.

    ``paid`` is the expected paid time per useful time and ``risky_paid`` the same at ``risky``
    interruptions per hour, the policy's pessimistic figure; ``loss_s2`` is the mean square, in s²,
    of what one interruption costs; ``steadiness`` is the pessimistic share of time with capacity of
    any pool at about the price.
    """

    columns: OfferColumns
    rows: ConfigurationRows
    gangs: DistinctGangs
    paid: Array
    risky: Array
    risky_paid: Array
    loss_s2: Array
    steadiness: Array

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the terms of the rows with these numbers, in this order."""
        columns = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if f.name not in ("columns", "rows", "gangs")
        }
        return type(self)(
            columns=self.columns, rows=self.rows.take(rows), gangs=self.gangs.take(rows), **columns
        )


def terms_of(
    columns: OfferColumns,
    gangs: DistinctGangs,
    scaling: Sequence[float],
    rows: ConfigurationRows,
    starts: StartupCosts,
    interval_s: float | None,
    request: PlanRequest,
) -> ConfigurationTerms:
    """Return the terms of the rows, without those whose power cap would not lower the energy.

    ``scaling`` is the strong-scaling efficiency of each distinct gang, ``interval_s`` the time
    between saves that the job states.
    """
    first, times, policy = rows.first(), starts.times.take(gangs.place), request.policy
    usd = gang_sum(rows, columns.usd_per_hour) + gang_sum(rows, starts.node_hour_usd)
    peak_kw, idle_kw = gang_busy_kw(rows, columns), gang_sum(rows, columns.idle_kw)
    lost = 1.0 - np.array(scaling, dtype=float)[gangs.place]
    drawn = 1.0 - columns.communication_share[first] * lost  # communication_factor by row
    busy_kw = peak_kw * drawn
    carbon = columns.gco2e_per_kwh[first]
    save_s, groups = times.save_s, times.groups
    hazard, hazard_low, hazard_high = (
        gang_hazard(rows, each)
        for each in (columns.hazard, columns.hazard_low, columns.hazard_high)
    )
    stopped = np.where(groups > 1, 1 / rows.parts_count, 1.0)
    noticed = -gang_max(rows, -columns.notice_s) > times.persist_s
    lossless = noticed | (groups > 1)
    saved_usd = starts.save_usd[first]
    saved_usd[rows.spread.rows] += starts.zone_usd[first][rows.spread.rows]
    paid_s = 3600 * np.divide(saved_usd, usd, out=np.zeros_like(usd), where=usd > 0)
    lag_s = times.persist_s - save_s
    risky_interval = intervals_s(hazard, interval_s, save_s, lag_s, paid_s)
    unnoticed = np.where(noticed, 0.0, hazard)
    interval = intervals_s(unnoticed, interval_s, save_s, lag_s, paid_s)
    # What is saved on notice is durable before the node goes.
    lag_s = np.where(noticed & (groups == 1), save_s, times.lag_s)

    paid_start_h, wait_h = times.overhead_s / 3600 + starts.hours[first], columns.wait_h[first]
    start_h = wait_h + paid_start_h
    node_usd = gang_sum(rows, starts.node_usd)
    transfer_usd = starts.usd[first] + node_usd
    restart_s = 3600 * start_h * stopped + lag_s
    idle_share = np.minimum(1.0, hazard * restart_s / 3600)
    kwh_per_hour = np.nan_to_num(busy_kw * (1 - idle_share) + idle_kw * idle_share)
    kwh_per_start = np.nan_to_num(idle_kw * paid_start_h)
    saves_per_hour = 3600 / (interval + save_s)
    # Nodes of other groups hold the data and the state.
    lost_usd = np.where(groups > 1, 0.0, starts.usd[first]) + node_usd / rows.parts_count
    save_usd = saves_per_hour * saved_usd + starts.hour_usd[first]
    moving_usd = hazard * lost_usd + save_usd
    usd_per_start = usd * paid_start_h + transfer_usd

    weight = quantile_weight(policy.risk.on_time)
    risky = np.maximum(towards(hazard, hazard_high, weight), 0.0)
    any_share = partial(share_of_any, rows, columns)
    low_share = towards(columns.availability, columns.availability_low, weight)
    terms = ConfigurationTerms(
        columns=columns,
        rows=rows,
        gangs=gangs,
        usd_per_hour=usd + moving_usd,
        peak_kw=peak_kw,
        busy_kw=busy_kw,
        idle_kw=idle_kw,
        gco2e_per_kwh=carbon,
        power_error=columns.power_error[first],
        hazard=hazard,
        hazard_low=hazard_low,
        hazard_high=hazard_high,
        noticed=noticed,
        lossless=lossless,
        interval_s=interval,
        risky_interval_s=risky_interval,
        unsaved_h=(risky_interval + save_s + request.tick_s) / 3600,
        save_s=save_s,
        stopped=stopped,
        lag_s=lag_s,
        availability=-gang_max(rows, -columns.availability),
        firm=columns.firm[first],
        now=fits_available_nodes(rows, columns.room_nodes),
        calendar=1 / np.clip(any_share(columns.availability), 1e-3, 1.0),
        score_per_hour=scored(policy.objective, usd + moving_usd, kwh_per_hour, carbon),
        usd_per_start=usd_per_start,
        kwh_per_hour=kwh_per_hour,
        kwh_per_start=kwh_per_start,
        start_score=scored(policy.objective, usd_per_start, kwh_per_start, carbon),
        cap_w=power_cap_w(rows, columns),
        start_h=start_h,
        restore_h=times.restore_s / 3600,
        wait_h=wait_h,
        transfer_usd=transfer_usd,
        moving_usd_per_hour=moving_usd,
        from_h=gang_max(rows, columns.from_h),
        until_h=-gang_max(rows, -columns.until_h),
        steady=columns.reserved[first],
        paid=paid_to_useful_ratio(hazard, interval, save_s, restart_s, lossless),
        risky=risky,
        risky_paid=paid_to_useful_ratio(risky, interval, save_s, restart_s, lossless),
        loss_s2=mean_square_loss_s2(np.where(lossless, 0.0, interval), restart_s),
        steadiness=np.clip(any_share(np.maximum(low_share, 0.0)), 1e-3, 1.0),
    )
    restarting = np.minimum(1.0, hazard * start_h)
    pays = is_energy_saving(rows, columns, busy_kw, drawn, idle_kw, restarting)
    return terms if pays.all() else terms.take(np.flatnonzero(pays))


MAX_HOURS = 1e6
"""Calendar hours per paid hour beyond which nothing fits any deadline; solvers refuse far more."""


def build_table(terms: ConfigurationTerms, demand: Demand, policy: Policy) -> ConfigurationTable:
    """Return the configuration table of the rows; it shares the columns of the terms."""
    rows = terms.rows
    running = _running(terms, demand)
    speeds = speeds_of(terms.gangs, demand, running)
    columns = {f.name: getattr(terms, f.name) for f in fields(ConfigurationColumns)}
    if demand.running:
        columns["now"] = _startable(terms, demand)
        columns["wait_h"] = np.where(running, 0.0, terms.wait_h)
        columns["start_h"] = terms.start_h - terms.wait_h + columns["wait_h"]
    columns |= _restores(terms, demand, columns["start_h"], policy)
    return ConfigurationTable(
        **columns,
        offers=terms.columns.offers,
        spread=rows.spread,
        offer=rows.offer,
        nodes=rows.nodes,
        gang=rows.gang,
        running=running,
        speed=speeds.value,
        speed_low=speeds.low,
        speed_high=speeds.high,
        pace=speeds.pace,
        paid_units_per_hour=3600 * speeds.value / terms.paid,
        stretch=_stretch(terms, speeds, demand, policy.risk.on_time),
    )


def _restores(
    terms: ConfigurationTerms, demand: Demand, start_h: Array, policy: Policy
) -> dict[str, Array]:
    """What a first start takes, which has no checkpoint to load; later ones load one."""
    if demand.begun:
        return {"restore_h": np.zeros(len(terms))}
    saved_h = terms.restore_h
    usd = terms.node_usd_per_hour * saved_h
    kwh = np.nan_to_num(terms.idle_kw) * saved_h
    return {
        "start_h": start_h - saved_h,
        "usd_per_start": terms.usd_per_start - usd,
        "kwh_per_start": terms.kwh_per_start - kwh,
        "start_score": terms.start_score - scored(policy.objective, usd, kwh, terms.gco2e_per_kwh),
    }


def _running(terms: ConfigurationTerms, demand: Demand) -> Mask:
    """Which rows are the living gang, node for node."""
    rows, living = terms.rows, demand.running
    running = np.zeros(len(rows), dtype=bool)
    if living:
        lives = _in_living_pools(terms.columns, demand) > 0
        likely = (rows.nodes == sum(living.values())) & lives[rows.first()]
        for row in np.flatnonzero(likely).tolist():
            held = {terms.columns.offers[number].pool: nodes for number, nodes in rows.parts(row)}
            running[row] = held == dict(living)
    return running


def _startable(terms: ConfigurationTerms, demand: Demand) -> Mask:
    """Whether what is available at present, with the nodes that the job has, fits the gang.

    A reservation's room counts them already.
    """
    columns = terms.columns
    held = np.where(columns.reserved, 0, _in_living_pools(columns, demand))
    return fits_available_nodes(terms.rows, columns.room_nodes + held)


def _in_living_pools(columns: OfferColumns, demand: Demand) -> NDArray[np.int64]:
    """The nodes that the living gang has in the pool of each offer."""
    return np.array([demand.running.get(offer.pool, 0) for offer in columns.offers], dtype=np.int64)


def _stretch(
    terms: ConfigurationTerms, speeds: ConfigurationSpeeds, demand: Demand, on_time: float
) -> Array:
    """Calendar hours to hold for a paid hour, so that the work is done in time as surely as asked.

    ``weight`` standard deviations of the interruptions' cost are added per paid hour of the whole
    job: the variance of a compound Poisson sum is its mean count times the mean square of one term.
    """
    weight, speed = quantile_weight(on_time), speeds.value
    slow = np.maximum(towards(speed, speeds.low, weight), speed * 1e-3)
    held = terms.risky_paid * (speed / slow) / terms.paid
    units = base_units(demand.stage_units, speeds.pace)
    units = np.where(np.isfinite(units), units, demand.units)
    alone_h = np.maximum(units * terms.paid / speed / 3600, 1e-9)
    variance_s2 = terms.risky * alone_h * terms.loss_s2
    ragged = weight * np.sqrt(variance_s2) / 3600 / alone_h
    return np.clip((held + ragged) / terms.steadiness, 1.0, MAX_HOURS)
