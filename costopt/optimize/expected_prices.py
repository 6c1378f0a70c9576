"""A job's table at the prices that each configuration would pay if it did the job by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fleet.solve import planning_slots
from costopt.optimize.prune import single_work_units
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slots import AVAILABILITY_HORIZON_H
from costopt.optimize.tariff import ForecastTable, SlotCosts


def with_mean_prices(
    request: PlanRequest, table: ConfigurationTable, demand: Demand
) -> ConfigurationTable:
    """The table with the mean prices and carbon intensities of the hours that each row would run.

    These are the hours from the earliest that it may begin to its expected end, at the latest the
    job's due time. A start is paid at the prices of the first of them. Where nothing is forecast
    it is the table itself.
    """
    slots = planning_slots(request, [demand])
    outlook = ForecastTable.of(request, slots)
    if outlook.constant or not slots or not len(table):
        return table
    rows = np.arange(len(table))
    tariff = SlotCosts.of(outlook, table, request.policy.objective)
    weight = _shares(table, demand, outlook)
    first = (weight > 0).argmax(axis=0)
    return replace(
        table,
        usd_per_hour=(weight * tariff.usd_per_hour(rows)).sum(axis=0),
        usd_per_start=tariff.usd_per_start(rows)[first, rows],
        score_per_hour=(weight * tariff.score_per_hour(rows)).sum(axis=0),
        start_score=tariff.start_score(rows)[first, rows],
        gco2e_per_kwh=(weight * tariff.gco2e_per_kwh(rows)).sum(axis=0),
    )


def _shares(table: ConfigurationTable, demand: Demand, outlook: ForecastTable) -> Array:
    """(T, rows): the share of each row's hours that lies in each slot."""
    usable_now = table.now | table.running
    begin_h = np.maximum(np.where(usable_now, 0.0, AVAILABILITY_HORIZON_H), demand.release_h)
    begin_h = np.minimum(np.maximum(begin_h, table.from_h), demand.due_h)
    paid_h = single_work_units(table, demand) / table.paid_units_per_hour
    takes_h = np.minimum(table.start_h + paid_h * table.calendar, demand.due_h - begin_h)
    end_h = begin_h + np.maximum(takes_h, 1e-6)
    start = np.array([slot.start_h for slot in outlook.slots])[:, None]
    end = np.array([slot.end_h for slot in outlook.slots])[:, None]
    inside = np.maximum(np.minimum(end_h, end) - np.maximum(begin_h, start), 0.0)
    inside[-1, inside.sum(axis=0) <= 0] = 1.0
    shares: Array = inside / inside.sum(axis=0)
    return shares
