"""Menus of large tables: what they may leave out, and what they may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from benchmarks.fleet_instance import instance
from costopt.domain.estimate import Series
from costopt.optimize.colgen import menus as fleet_menus
from costopt.optimize.colgen.best_response import min_unit_cost
from costopt.optimize.colgen.capacity import SharedCapacity
from costopt.optimize.colgen.menu import JobMenu, PricingDuals
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.pricing import solve_pricing
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.limits import shared_limits
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of these tests count as too large to be menus as they are."""
    monkeypatch.setattr(fleet_menus, "MAX_FULL_CELLS", 0)


def menus_of(request: PlanRequest) -> tuple[Menus, SharedCapacity, list[PlannedJob]]:
    parts, _ = prepare(request)
    slots = planning_slots(request, [part.demand for part in parts])
    capacity = SharedCapacity(request, slots, shared_limits(request))
    return Menus(request, parts, ForecastTable.of(request, slots), capacity), capacity, parts


def test_no_path_is_lost_with_rows_that_are_worth_nothing() -> None:
    menus, capacity, parts = menus_of(instance(60, 48, 4))
    rng = np.random.default_rng(1)
    scale = rng.uniform(0, 3, capacity.active.shape) * (rng.random(capacity.active.shape) < 0.3)
    for job, part in enumerate(parts):
        floor = min_unit_cost(menus[job])
        assert floor is not None
        menus.extend(job, np.arange(len(part.table)))
        whole: JobMenu = menus[job]
        for times in (1.05, 1.5, 4.0):
            node_prices = capacity.node_prices(scale, part.demand.job.tenant)
            worth = menus.keep_all(job, floor * times, node_prices)
            values = [
                solve_pricing(
                    menu,
                    PricingDuals(floor * times, capacity.shared_prices(menu, node_prices, scale)),
                ).value
                for menu in (worth, whole)
            ]
            assert values[0] == pytest.approx(values[1], rel=1e-9, abs=1e-9)
            assert len(worth) < len(whole)


@pytest.mark.parametrize("hour", [1, 13, 29, 46])
def test_a_pool_that_is_cheap_for_an_hour_is_on_the_menu(hour: int) -> None:
    request = instance(60, 48, 1)
    pool = next(o.pool for o in request.offers if o.pool in request.price_forecasts)
    at = [request.now + timedelta(hours=hours) for hours in (0, hour, hour + 1)]
    dip = Series(tuple(at), (1000.0, 0.01, 1000.0), "made up")
    request = replace(request, price_forecasts={**request.price_forecasts, pool: dip})
    (view,) = request.jobs
    due = replace(view.job, deadline_at=request.now + timedelta(hours=48))
    request = replace(request, jobs=(replace(view, job=due),))
    menus, _, (part,) = menus_of(request)
    offered = {part.table.offers[number].pool for number in part.table.first()[menus[0].rows]}
    assert pool in offered
    assert len(menus[0]) < len(part.table) / 2
