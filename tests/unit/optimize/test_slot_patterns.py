"""Patterns of what a few jobs run side by side: against all combinations, and as whole plans."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fleet_instance import instance
from benchmarks.optimize import _request
from costopt.domain.plan import PlanStatus
from costopt.optimize.colgen.capacity import SharedCapacity
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.slot_patterns import SlotPatterns
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.limits import shared_limits
from costopt.optimize.planner import plan, prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable
from costopt.optimize.solver import IncrementalProgram
from tests.support.optimize_fixtures import UNHURRIED_S
from tests.support.plan_check import faults_of


def menus_of(request: PlanRequest) -> tuple[Menus, SharedCapacity]:
    parts, _ = prepare(request)
    slots = planning_slots(request, [part.demand for part in parts])
    capacity = SharedCapacity(request, slots, shared_limits(request))
    return Menus(request, parts, ForecastTable.of(request, slots), capacity), capacity


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_bound_is_that_of_the_best_of_all_combinations(factor: float) -> None:
    menus, capacity = menus_of(_request(16, jobs=2, quota=6))
    one, other = menus[0], menus[1]
    prices = factor * np.array([12_000.0, 13_000.0])
    worth = [
        np.maximum(price * np.outer(m.hours, m.units[0] / m.work[0]) - m.pay, 0.0)
        for price, m in zip(prices, (one, other), strict=True)
    ]
    fits = one.nodes[:, None] + other.nodes[None, :] <= 6
    best = 0.0
    for first, second in zip(*worth, strict=True):
        alone = max(first[one.nodes <= 6].max(), second[other.nodes <= 6].max())
        best += max(alone, np.where(fits, first[:, None] + second[None, :], 0.0).max())
    patterns = SlotPatterns(capacity, [one, other])
    assert patterns.usable
    assert patterns.bound(prices) == pytest.approx(prices.sum() - best, rel=1e-9)


def test_rows_hold_of_limits_what_the_limits_count() -> None:
    request = instance(60, 24, 3)
    menus, capacity = menus_of(request)
    for job in range(len(menus)):
        menu = menus[job]
        loads = capacity.loads(menu)
        for number, limit in enumerate(capacity.limits):
            if limit.near or limit.resource.per_machine is None:
                continue
            for place, row in enumerate(menu.rows.tolist()[::7]):
                load = limit.load(request, menu.part.demand, menu.part.table, row)
                assert loads[number, 7 * place] == pytest.approx(load)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "quota", "most"), [(2, 8, 0.025), (3, 12, 0.04)])
def test_jobs_that_barely_fit_are_planned_close_to_the_bound(
    jobs: int, quota: int, most: float
) -> None:
    """Placed one after the other, they cost a quarter more, and the bound is as far below."""
    request = _request(24, jobs=jobs, quota=quota)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert made.status is PlanStatus.FEASIBLE
    assert faults_of(request, made) == []
    assert made.gap is not None
    assert made.gap < most


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_row_of_a_program_is_moved_between_solves(solver: str) -> None:
    program = IncrementalProgram(solver)
    row = program.row(low=1.0, terms={})
    program.columns([2.0], [{row: 1.0}])
    for low in (1.0, 3.0, 0.5):
        program.set_low(row, low)
        found = program.solve(time_limit_s=10.0)
        assert found is not None
        assert found.objective == pytest.approx(2 * low)
