"""The columns of a table of configurations: prices, power, hazards, speeds, rates and margins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

import numpy as np

from costopt.domain.market import Offer
from costopt.domain.policy import Objective
from costopt.optimize.caps import cap_w, gang_busy_kw
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fetch import Fetch, fetch_to
from costopt.optimize.rates import (
    Array,
    base_units,
    intervals_s,
    loss_square_s2,
    paid_per_useful,
    quantile_weight,
    towards,
)
from costopt.optimize.request import PlanRequest
from costopt.optimize.rows import Mask, Rows, fits_room, gang_sum, most_of, price_of
from costopt.optimize.shared import is_reserved, room_nodes
from costopt.optimize.speeds import speeds_of

ENDLESS = 1e6
"""Calendar hours per paid hour beyond which nothing fits any deadline; solvers refuse far more."""


def table_of(
    offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, demand: Demand
) -> ConfigurationTable:
    """Every column of ``ConfigurationTable`` for these rows."""
    first = rows.first()
    powers = [request.powers[offer.pool] for offer in offers]
    hazards = [offer.hazard_per_hour for offer in offers]

    def gang(values: Iterable[float]) -> Array:
        return gang_sum(rows, np.fromiter(values, dtype=float))

    def member(values: Iterable[float]) -> Array:
        column = np.fromiter(values, dtype=float)
        return column[first] if len(first) else np.empty(0)

    hazard = gang(0.0 if h is None else h.value for h in hazards)
    hazard_low = gang(0.0 if h is None else h.low for h in hazards)
    hazard_high = gang(0.0 if h is None else h.high for h in hazards)
    usd = gang(price_of(offer) for offer in offers)
    busy_kw = gang_busy_kw(rows, powers)
    idle_kw = gang(p.idle_w * p.pue / 1000 for p in powers)
    carbon = member(math.nan if p.gco2e_per_kwh is None else p.gco2e_per_kwh for p in powers)
    running = _running(offers, rows, demand)
    speeds = speeds_of(offers, rows, request, demand, running)
    speed, pace = speeds.value, speeds.pace
    availability, availability_low = _availability(offers, rows)
    interval = intervals_s(hazard, demand.job.checkpoint)

    fetches = [_fetch(offer, request, demand) for offer in offers]
    start_h = demand.job.overhead_s / 3600 + member(f.hours for f in fetches)
    transfer_usd = member(f.usd for f in fetches)
    restart_s, save_s = 3600 * start_h, demand.job.checkpoint.save_s
    paid = paid_per_useful(hazard, interval, save_s, restart_s)
    idle_share = np.minimum(1.0, hazard * restart_s / 3600)
    kwh_per_hour = busy_kw * (1 - idle_share) + idle_kw * idle_share
    saves_per_hour = 3600 / (interval + save_s)
    moving_usd = hazard * transfer_usd + saves_per_hour * member(f.save_usd for f in fetches)
    usd_per_start = usd * start_h + transfer_usd

    weight = quantile_weight(request.policy.risk.on_time)
    slow = np.maximum(towards(speed, speeds.low, weight), speed * 1e-3)
    risky = np.maximum(towards(hazard, hazard_high, weight), 0.0)
    steady = np.clip(towards(availability, availability_low, weight), 1e-3, 1.0)
    held = paid_per_useful(risky, interval, save_s, restart_s) * (speed / slow) / paid
    ragged = _ragged(paid, speed, pace, risky, interval, restart_s, demand, weight)
    objective = request.policy.objective
    return ConfigurationTable(
        offers=offers,
        spread=rows.spread,
        offer=rows.offer,
        nodes=rows.nodes,
        usd_per_hour=usd + moving_usd,
        busy_kw=busy_kw,
        idle_kw=idle_kw,
        gco2e_per_kwh=carbon,
        power_error=member(p.relative_error for p in powers),
        hazard=hazard,
        hazard_low=hazard_low,
        hazard_high=hazard_high,
        speed=speed,
        speed_low=speeds.low,
        speed_high=speeds.high,
        interval_s=interval,
        availability=availability,
        interruptible=member(o.pool.capacity_type.interruptible for o in offers).astype(bool),
        now=_startable(offers, rows, request, demand),
        running=running,
        paid_units_per_hour=3600 * speed / paid,
        calendar=1 / np.clip(availability, 1e-3, 1.0),
        stretch=np.clip((held + ragged) / steady, 1.0, ENDLESS),
        score_per_hour=_score(objective, usd + moving_usd, kwh_per_hour, carbon),
        usd_per_start=usd_per_start,
        kwh_per_hour=kwh_per_hour,
        kwh_per_start=idle_kw * start_h,
        start_score=_score(objective, usd_per_start, idle_kw * start_h, carbon),
        gang=rows.gang,
        cap_w=cap_w(rows, powers),
        start_h=start_h,
        transfer_usd=transfer_usd,
        moving_usd_per_hour=moving_usd,
        from_h=_from_h(offers, rows, request.now),
        until_h=_until_h(offers, rows, request.now),
        steady=member(is_reserved(o.pool) for o in offers).astype(bool),
        pace=pace,
    )


def _fetch(offer: Offer, request: PlanRequest, demand: Demand) -> Fetch:
    found = fetch_to(offer.pool, request.machines[offer.pool], demand.job, request.transfers)
    assert found is not None, "screened out before"
    return found


def _ragged(
    paid: Array,
    speed: Array,
    pace: Array,
    hazard: Array,
    interval_s: Array,
    restart_s: Array,
    demand: Demand,
    weight: float,
) -> Array:
    """``weight`` standard deviations of the interruptions' cost, per paid hour of the whole job.

    The variance of a compound Poisson sum is its mean count times the mean square of one term.
    """
    units = base_units(demand.stage_units, pace)
    units = np.where(np.isfinite(units), units, demand.units)
    alone_h = np.maximum(units * paid / speed / 3600, 1e-9)
    variance_s2 = hazard * alone_h * loss_square_s2(interval_s, restart_s)
    ragged: Array = weight * np.sqrt(variance_s2) / 3600 / alone_h
    return ragged


def _score(objective: Objective, usd: Array, kwh: Array, carbon: Array) -> Array:
    """The objective; unknown carbon is screened out before where the policy weighs it."""
    score = objective.usd * usd + objective.usd_per_kwh * kwh
    if objective.usd_per_tonne_co2e > 0:
        score = score + objective.usd_per_tonne_co2e * kwh * carbon / 1e6
    return score


def _availability(offers: tuple[Offer, ...], rows: Rows) -> tuple[Array, Array]:
    """The share of time with capacity: of the scarcest zone; 1 where nothing is known."""
    value = np.array([1.0 if o.availability is None else o.availability.value for o in offers])
    low = np.array([1.0 if o.availability is None else o.availability.low for o in offers])
    first = rows.first()
    if not len(first):
        return np.empty(0), np.empty(0)
    out, out_low = value[first], low[first]
    for row in np.flatnonzero(rows.offer < 0):
        members = [number for number, _ in rows.spread[row]]
        out[row], out_low[row] = value[members].min(), low[members].min()
    return out, out_low


def _running(offers: tuple[Offer, ...], rows: Rows, demand: Demand) -> Mask:
    """Which rows are the living gang, node for node."""
    running = np.zeros(len(rows.nodes), dtype=bool)
    if demand.running:
        for row in np.flatnonzero(rows.nodes == sum(demand.running.values())).tolist():
            held = {offers[number].pool: nodes for number, nodes in rows.parts(row)}
            running[row] = held == dict(demand.running)
    return running


def _startable(offers: tuple[Offer, ...], rows: Rows, request: PlanRequest, demand: Demand) -> Mask:
    """Whether what is available at present, with the nodes that the job has, fits the gang."""
    return fits_room(rows, np.array([room_nodes(offer, request, demand) for offer in offers]))


def _from_h(offers: tuple[Offer, ...], rows: Rows, now: datetime) -> Array:
    """Hours until the last of a gang's offers begins, −∞ where none is dated."""
    begins = [-math.inf if o.from_at is None else _hours(o.from_at - now) for o in offers]
    return most_of(rows, np.array(begins))


def _until_h(offers: tuple[Offer, ...], rows: Rows, now: datetime) -> Array:
    """Hours until the first of a gang's offers ends, ∞ where none is dated."""
    ends = [math.inf if o.until_at is None else _hours(o.until_at - now) for o in offers]
    return -most_of(rows, -np.array(ends))


def _hours(span: timedelta) -> float:
    return span.total_seconds() / 3600
