"""The table of a job: the terms of its rows, with its speeds and what follows from them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Policy
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.rates import Array, base_units, quantile_weight, towards
from costopt.optimize.rows import fits_available_nodes
from costopt.optimize.speeds import ConfigurationSpeeds, speeds_of
from costopt.optimize.spreads import Mask
from costopt.optimize.terms import ConfigurationTerms

MAX_HOURS = 1e6
"""Calendar hours per paid hour beyond which nothing fits any deadline; solvers refuse far more."""

_SHARED = tuple(
    f.name
    for f in fields(ConfigurationTerms)
    if f.name in {g.name for g in fields(ConfigurationTable)}
)


def build_table(terms: ConfigurationTerms, demand: Demand, policy: Policy) -> ConfigurationTable:
    """Every column of ``ConfigurationTable`` for these rows; those of the terms are not copied."""
    rows = terms.rows
    running = _running(terms, demand)
    speeds = speeds_of(terms.gangs, demand, running)
    columns = {name: getattr(terms, name) for name in _SHARED}
    if demand.running:
        columns["now"] = _startable(terms, demand)
        columns["wait_h"] = np.where(running, 0.0, terms.wait_h)
        columns["start_h"] = terms.start_h - terms.wait_h + columns["wait_h"]
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
