"""The planner against an exhaustive search, and its rates against a simulation event by event."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.checkpoint_interval import explained_interval
from costopt.domain.job import Job, Resources
from costopt.domain.market import Offer
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Objective, Policy, Risk
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize import pruning
from costopt.optimize.planner import plan
from costopt.optimize.rates import paid_to_useful_ratio
from costopt.optimize.request import PlanRequest, Quota
from tests.support.optimize_fixtures import NOW, job, machines_of, offer, pool, power

WEIGHTS = Objective(usd_per_kwh=0.2, usd_per_tonne_co2e=100.0)
POLICY = Policy("p", objective=WEIGHTS, risk=Risk(on_time=0.0, reserve_s=0.0))


@dataclass(frozen=True)
class Rate:
    """Work per paid hour, objective of one, and of a start."""

    units: float
    score: float
    start: float


def rates(offers: list[Offer], what: Job) -> list[Rate]:
    """Every pool × gang size, from the formulas written out by hand."""
    found: list[Rate] = []
    restart_s, save_s = what.overhead_s, what.checkpoint.save_s
    for one in offers:
        assert one.price_usd_per_hour is not None
        assert one.hazard_per_hour is not None
        for nodes in range(1, what.resources.max_nodes + 1):
            hazard = one.hazard_per_hour.value
            every_s = explained_interval(hazard_per_hour=hazard, blocking_save_s=save_s).interval_s
            rate = hazard / 3600
            paid = (
                math.exp(rate * restart_s) * math.expm1(rate * (every_s + save_s)) / rate / every_s
                if rate
                else 1 + save_s / every_s
            )
            idle = min(1.0, rate * restart_s)
            kw = nodes * (4.8 * (1 - idle) + 1.2 * idle)
            usd = one.price_usd_per_hour.value * nodes
            speed = 1.8 ** math.log2(nodes)
            start_h = what.startup_s / 3600
            found.append(
                Rate(
                    3600 * speed / paid,
                    usd + kw * (0.2 + 100 * 300 / 1e6),
                    start_h * (usd + nodes * 1.2 * (0.2 + 100 * 300 / 1e6)),
                )
            )
    return found


def cheapest(found: list[Rate], units: float, hours: float, start_h: float) -> float:
    """The optimum: with two rows (work, time) some optimum runs at most two configurations."""
    best = math.inf
    for a in found:
        run_h = units / a.units
        if run_h + start_h <= hours:
            best = min(best, a.score * run_h + a.start)
    for a, b in itertools.combinations(found, 2):
        left_h = hours - 2 * start_h
        if left_h < 0 or abs(a.units - b.units) < 1e-9:
            continue
        on_a = (units - b.units * left_h) / (a.units - b.units)
        if 0 <= on_a <= left_h:
            cost = a.score * on_a + b.score * (left_h - on_a) + a.start + b.start
            best = min(best, cost)
    return best


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[Offer], Job]:
    offers = [
        offer(
            pool(zone),
            draw(st.floats(0.5, 10)),
            hazard=draw(st.sampled_from([0.0, 0.01, 0.1, 0.5])),
        )
        for zone in "abcd"[: draw(st.integers(1, 4))]
    ]
    what = job(
        draw(st.floats(0.5, 40)),
        deadline_h=draw(st.floats(1, 40)),
        resources=Resources(max_nodes=draw(st.integers(1, 4))),
        startup_s=draw(st.sampled_from([0.0, 120.0, 1200.0])),
    )
    return offers, what


def planned(offers: list[Offer], what: Job, solver: str = "highs") -> Plan:
    return plan(
        PlanRequest(
            NOW,
            (JobView(what, Progress()),),
            tuple(offers),
            machines_of(offers),
            {o.pool: power() for o in offers},
            POLICY,
        ),
        solver=solver,
        explain=False,
    )


def optimum(offers: list[Offer], what: Job) -> float:
    hours = (what.until_at - NOW).total_seconds() / 3600
    start_h = what.startup_s / 3600
    return cheapest(rates(offers, what), what.work.amount, hours, start_h)


def on_the_edge(offers: list[Offer], what: Job) -> bool:
    """Whether a hair more or less work decides if the job fits."""
    hours = (what.until_at - NOW).total_seconds() / 3600 - what.startup_s / 3600
    fastest = max(rate.units for rate in rates(offers, what))
    return abs(what.work.amount / fastest - hours) < 1e-3 * abs(hours) + 1e-3


@settings(max_examples=150, deadline=None)
@given(instances())
def test_one_job_is_planned_at_the_exhaustive_optimum(instance: tuple[list[Offer], Job]) -> None:
    offers, what = instance
    if on_the_edge(offers, what):
        return
    best, made = optimum(offers, what), planned(offers, what)
    if math.isinf(best):
        assert made.status is PlanStatus.INFEASIBLE
        assert made.binding is not None
        assert made.binding.startswith("deadline")
        return
    assert made.status is PlanStatus.OPTIMAL
    assert made.objective_usd == pytest.approx(best, rel=2e-4)
    assert made.bound_usd is not None
    assert made.bound_usd <= best * (1 + 1e-4)


@settings(max_examples=80, deadline=None)
@given(instances())
def test_pruning_loses_little(instance: tuple[list[Offer], Job]) -> None:
    offers, what = instance
    if on_the_edge(offers, what):
        return
    best = optimum(offers, what)
    with patch.object(pruning, "KEEP_ALL", 0):
        made = planned(offers, what)
    if math.isinf(best):
        assert made.status is PlanStatus.INFEASIBLE
        return
    assert made.objective_usd is not None
    assert best * (1 - 2e-4) <= made.objective_usd <= best * 1.01


@settings(max_examples=10, deadline=None)
@given(instances())
def test_both_solvers_agree(instance: tuple[list[Offer], Job]) -> None:
    offers, what = instance
    if on_the_edge(offers, what):
        return
    highs, cbc = planned(offers, what), planned(offers, what, "cbc")
    assert highs.status is cbc.status
    if highs.objective_usd is not None:
        assert cbc.objective_usd == pytest.approx(highs.objective_usd, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 4), st.floats(4, 16)), min_size=2, max_size=3),
    st.integers(1, 3),
    st.sampled_from([None, 0, 1, 3]),
)
def test_competing_jobs_never_break_a_shared_limit(
    jobs: list[tuple[float, float]], most: int, available: int | None
) -> None:
    views = tuple(
        JobView(
            job(work_h, deadline_h=deadline_h, name=f"j{i}", resources=Resources(max_nodes=2)),
            Progress(),
        )
        for i, (work_h, deadline_h) in enumerate(jobs)
    )
    offers = (offer(pool("a"), 1.0, available=available), offer(pool("b"), 3.0))
    wanted = PlanRequest(
        NOW,
        views,
        offers,
        machines_of(offers),
        {o.pool: power() for o in offers},
        POLICY,
        quotas=(Quota("all", max_nodes=most),),
    )
    made = plan(wanted, time_limit_s=1.0, explain=False)
    if made.status is PlanStatus.INFEASIBLE:
        assert made.binding
        return
    assert {a.job for a in made.allocations} == {view.job.name for view in views}
    for moment in {a.start_at + timedelta(seconds=1) for a in made.allocations}:
        held = [a for a in made.allocations if a.start_at <= moment < a.end_at]
        assert sum(a.nodes for a in held) <= most
        if available is not None and moment < NOW + timedelta(hours=1):
            assert sum(a.nodes for a in held if a.pool == offers[0].pool) <= available
    for view in views:
        assert max(a.end_at for a in made.allocations if a.job == view.job.name) <= (
            view.job.until_at + timedelta(seconds=1)
        )


@pytest.mark.parametrize("hazard_per_hour", [0.05, 0.5, 2.0])
def test_the_expected_paid_time_is_that_of_a_simulation(hazard_per_hour: float) -> None:
    rng, every_s, save_s, restart_s, useful_s = random.Random(7), 600.0, 10.0, 180.0, 6000.0
    runs, total_s = 3000, 0.0
    for _ in range(runs):
        done_s, restarting = 0.0, False
        while done_s < useful_s - 1e-9:
            need_s = every_s + save_s + (restart_s if restarting else 0.0)
            alive_s = rng.expovariate(hazard_per_hour / 3600)
            total_s += min(need_s, alive_s)
            restarting = alive_s < need_s
            done_s += 0.0 if restarting else every_s
    expected = float(
        paid_to_useful_ratio(np.array([hazard_per_hour]), np.array([every_s]), save_s, restart_s)[0]
    )
    assert total_s / runs / useful_s == pytest.approx(expected, rel=0.02)
