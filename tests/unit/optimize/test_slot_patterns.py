"""Patterns of what a few jobs run side by side: against all combinations, and as whole plans."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from benchmarks.fleet_instance import instance
from benchmarks.optimize import _request
from costopt.domain.plan import PlanStatus
from costopt.domain.view import JobView
from costopt.optimize.colgen.capacity import SharedCapacity
from costopt.optimize.colgen.generation import ColumnGeneration
from costopt.optimize.colgen.menus import Menus
from costopt.optimize.colgen.pattern_order import PatternOrder
from costopt.optimize.colgen.slot_patterns import SlotPatterns
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.limits import shared_limits
from costopt.optimize.planner import plan, prepare
from costopt.optimize.request import PlanRequest
from costopt.optimize.slot_costs import ForecastTable
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
    first_usd = 0.0
    for price, m in zip(prices.tolist(), (one, other), strict=True):
        slot_h = np.array([slot.hours for slot in capacity.slots])[:, None]
        start_h, can = m.start_h[m.gang], m.usable & (m.nodes <= 6)
        share = np.outer(m.hours, m.units[0] / m.work[0]) / slot_h * start_h
        more_usd = m.start_score[:, m.gang] - m.pay / slot_h * start_h
        first_usd += price * share[can].min() + min(0.0, more_usd[can].min())
    patterns = SlotPatterns(capacity, [one, other])
    assert patterns.usable
    assert patterns.bound(prices) == pytest.approx(prices.sum() + first_usd - best, rel=1e-9)


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
@pytest.mark.parametrize(("jobs", "quota", "most"), [(2, 8, 0.05), (3, 12, 0.03)])
def test_jobs_that_barely_fit_are_planned_close_to_the_bound(
    jobs: int, quota: int, most: float
) -> None:
    """Placed one after the other, they cost a quarter more, and the bound is as far below."""
    request = _request(24, jobs=jobs, quota=quota)
    made = plan(request, time_limit_s=UNHURRIED_S, explain=False)
    assert made.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE)
    assert faults_of(request, made) == []
    assert made.gap is not None
    assert made.gap < most


def later(request: PlanRequest, minutes: float) -> PlanRequest:
    """The same request, its deadlines included, at another minute of the hour."""
    by, jobs = timedelta(minutes=minutes), list[JobView]()
    for view in request.jobs:
        assert view.job.deadline_at is not None
        jobs.append(replace(view, job=replace(view.job, deadline_at=view.job.deadline_at + by)))
    return replace(request, now=request.now + by, jobs=tuple(jobs))


@pytest.mark.slow
def test_what_jobs_cost_does_not_depend_on_the_minute() -> None:
    """Patterns begin when they should, not at the hours that slots begin at."""
    wanted = _request(24, jobs=3, quota=12)
    made = [
        plan(later(wanted, minutes), time_limit_s=UNHURRIED_S, explain=False)
        for minutes in (0.0, 7.3, 41.0)
    ]
    costs = [each.objective_usd for each in made]
    assert costs == [pytest.approx(costs[0], rel=2e-3)] * 3
    assert any(each.start_at.minute not in (0, 30) for each in made[0].allocations)


@pytest.mark.slow
def test_a_plan_that_still_holds_is_kept_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, warm = _request(24, jobs=3, quota=12), WarmStart()
    first = plan(wanted, time_limit_s=UNHURRIED_S, explain=False, warm=warm)
    monkeypatch.delattr(ColumnGeneration, "run")
    for _ in range(2):
        again = plan(wanted, time_limit_s=UNHURRIED_S, explain=False, warm=warm)
        assert again.allocations == first.allocations


def test_patterns_follow_each_other_without_gaps_and_begin_in_order() -> None:
    menus, capacity = menus_of(_request(24, jobs=3, quota=12))
    patterns = SlotPatterns(capacity, [menus[job] for job in range(3)])
    patterns.solve(np.full(3, 20_000.0), math.inf)
    blocks = PatternOrder(patterns, math.inf).best()
    begins = [begin_h for begin_h, _ in blocks]
    assert begins[0] == 0.0
    assert begins == sorted(begins)
    found = {tuple(rows.tolist()) for _, rows, _ in patterns.columns} | {(-1, -1, -1)}
    assert {tuple(rows.tolist()) for _, rows in blocks} <= found
