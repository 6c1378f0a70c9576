"""What the limits that jobs share are worth over time, by a plan of all of them.

A dual value is what one more unit of a limit would save in a slot; per hour of the slot it is the
price at which jobs that are decided one by one leave the limit to those that need it most.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from costopt.domain.estimate import Series
from costopt.domain.limits import Resource
from costopt.domain.market import Offer, Pool
from costopt.optimize.colgen.capacity import SharedBudget, SharedCapacity, shared_budgets
from costopt.optimize.colgen.warm_start import FleetPlan
from costopt.optimize.rates import Array

SOURCE = "the price of the limits that jobs share"
NEGLIGIBLE_USD = 1e-6


def limit_prices(plan: FleetPlan) -> dict[str, Series]:
    """Return dollars per hour of one more unit of each limit that binds, by its name and unit; of a
    budget, dollars per dollar or kWh."""
    capacity = plan.capacity
    found = {}
    for number, limit in enumerate(capacity.limits):
        by_hour = plan.duals.shared[number] / _hours(capacity)
        if not limit.near and by_hour.max(initial=0.0) > NEGLIGIBLE_USD:
            found[f"{limit.name} ({limit.resource.unit})"] = _series(capacity, by_hour)
    for price, budget in _binding_budgets(plan):
        found[budget.name] = _series(capacity, np.full(len(capacity.slots), price))
    return found


def node_tolls(plan: FleetPlan, job: int) -> dict[Pool, Series]:
    """Return dollars per node-hour that the limits' prices add for a job, by pool.

    None is due in the slots in which the plan runs the job: at these prices it gains as much as it
    pays there.
    """
    capacity, request = plan.capacity, plan.capacity.request
    tenant, duals = plan.menus[job].part.demand.job.tenant, plan.duals.shared
    held = capacity.node_prices(duals, tenant).held.copy()
    for number in capacity.by_row:
        if duals[number].any() and capacity.limits[number].tenant in (None, tenant):
            held += np.outer(duals[number], _loads(capacity, number))
    by_hour: Array = held / _hours(capacity)[:, None]
    for price, budget in _binding_budgets(plan):
        if job in budget.jobs:
            resource = Resource.KW if budget.in_kwh else Resource.USD_PER_HOUR
            by_hour += price * np.array([_node_load(capacity, o, resource) for o in request.offers])
    schedule = plan.schedules[job]
    if schedule is not None:
        by_hour[schedule.slot] = 0.0
    return {
        offer.pool: _series(capacity, by_hour[:, column])
        for column, offer in enumerate(request.offers)
        if by_hour[:, column].max(initial=0.0) > NEGLIGIBLE_USD
    }


def _binding_budgets(plan: FleetPlan) -> list[tuple[float, SharedBudget]]:
    """The budgets of several jobs that have a price."""
    parts = [plan.menus[job].part for job in range(len(plan.menus))]
    budgets = shared_budgets(plan.capacity.request, parts)
    priced = zip(plan.duals.budget.tolist(), budgets, strict=True)
    return [each for each in priced if each[0] > NEGLIGIBLE_USD and len(each[1].jobs) > 1]


def _loads(capacity: SharedCapacity, number: int) -> list[float]:
    """What a node of each offer adds to a limit of dollars per hour or kW."""
    limit, machines = capacity.limits[number], capacity.request.machines
    return [
        _node_load(capacity, offer, limit.resource)
        if limit.quota is None or limit.quota.matches(offer.pool, machines[offer.pool])
        else 0.0
        for offer in capacity.request.offers
    ]


def _node_load(capacity: SharedCapacity, offer: Offer, resource: Resource) -> float:
    """Dollars per hour or kW of a node that trains; 0 where unknown: such offers are not planned
    under a limit on it."""
    if resource is Resource.USD_PER_HOUR:
        return 0.0 if offer.price_usd_per_hour is None else offer.price_usd_per_hour.value
    power = capacity.request.powers.get(offer.pool)
    return 0.0 if power is None else power.kwh(0.0, 3600.0)


def _hours(capacity: SharedCapacity) -> Array:
    return np.array([slot.hours for slot in capacity.slots])


def _series(capacity: SharedCapacity, by_slot: Array) -> Series:
    """By slot, and nothing after the last one."""
    now, slots = capacity.request.now, capacity.slots
    at: list[datetime] = [now + timedelta(hours=slot.start_h) for slot in slots]
    return Series((*at, now + timedelta(hours=slots[-1].end_h)), (*by_slot.tolist(), 0.0), SOURCE)
