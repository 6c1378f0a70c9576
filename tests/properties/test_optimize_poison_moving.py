"""Poisonous forecasts, power caps, transfers and quotas: a clear answer, never a wrong plan."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.errors import InfeasibleError, SolverError
from costopt.domain.estimate import Series
from costopt.domain.job import DataLocation, Resources
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.power import PowerCap
from costopt.domain.progress import Progress
from costopt.domain.transfers import Transfer
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.fleet_options import choices_of
from tests.support.optimize_fixtures import NOW, UNHURRIED_S, job, machines_of, offer, pool, power
from tests.support.plan_check import faults_of, objective_usd

PRICES_USD = (1e-5, 1e-2, 3.0, 1e5)
GRAMS = (0.0, 300.0, 1e6)
HOME = "aws/r0"


def series(values: list[float]) -> Series:
    """Hourly values."""
    at = tuple(NOW + timedelta(hours=hour) for hour in range(len(values)))
    return Series(at, tuple(values), "made up")


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    pools = [pool("a", region=f"r{n}") for n in range(draw(st.integers(0, 3)))]
    hours = draw(st.integers(1, 6))
    offers = tuple(
        offer(
            one,
            draw(st.sampled_from(PRICES_USD)),
            hazard=draw(st.sampled_from([0.0, 1e-9, 0.1, 30.0])),
            available=draw(st.sampled_from([None, None, 0, 1])),
        )
        for one in pools
    )
    cap = PowerCap(
        200.0, draw(st.sampled_from([1e-6, 0.8, 1.0])), draw(st.sampled_from([1e-3, 3e3])), "x"
    )
    what = job(
        draw(st.sampled_from([0.0, 1e-6, 0.01, 2.0, 1e12 / 3600])),
        deadline_h=draw(st.sampled_from([-1.0, 0.001, 0.1, 0.7, float(hours)])),
        start_h=draw(st.sampled_from([0.0, 0.0, 0.5])),
        resources=Resources(max_nodes=draw(st.integers(1, 2))),
        startup_s=draw(st.sampled_from([0.0, 120.0])),
        save_s=draw(st.sampled_from([0.0, 10.0])),
    )
    moved = Transfer(
        draw(st.sampled_from([0.0, 0.1, 1e5])), draw(st.sampled_from([None, 1e-6, 1e6])), "x"
    )
    prices = st.lists(st.sampled_from(PRICES_USD), min_size=hours, max_size=hours)
    grams = st.lists(st.sampled_from(GRAMS), min_size=hours, max_size=hours)
    return PlanRequest(
        NOW,
        (JobView(replace(what, data=DataLocation("x", 10.0, HOME)), Progress()),),
        offers,
        machines_of(offers),
        {one: replace(power(), caps=(cap,)) for one in pools},
        Policy(
            "p",
            Objective(draw(st.sampled_from([0.0, 1.0])), draw(st.sampled_from([1e-9, 1e3])), 100.0),
            Risk(on_time=0.0, reserve_s=0.0),
            limits=Limits(power_caps=True),
        ),
        quotas=(Quota("all", max_gpus=draw(st.sampled_from([0, 8, 10**9]))),),
        slot_s=3600.0,
        price_forecasts={one: series(draw(prices)) for one in pools},
        carbon_forecasts={f"{one.provider}/{one.region}": series(draw(grams)) for one in pools},
        transfers={(HOME, f"aws/r{n}"): moved for n in range(1, 3)},
    )


@settings(max_examples=150, deadline=None)
@given(requests())
def test_a_plan_is_right_or_says_why_there_is_none(wanted: PlanRequest) -> None:
    made = plan(wanted, time_limit_s=UNHURRIED_S, explain=False)
    if wanted.jobs[0].job.work.amount == 0:
        assert made.status is PlanStatus.EMPTY
        return
    if made.status is PlanStatus.INFEASIBLE:
        assert made.binding
        assert not made.allocations
        return
    assert made.objective_usd is not None
    assert made.bound_usd is not None
    assert made.bound_usd <= made.objective_usd * (1 + 1e-9)
    assert faults_of(wanted, made) == []
    rates = {c.parts: c.score_per_h(wanted, 0.0) for c in choices_of(wanted, wanted.jobs[0].job)}
    dust_usd = 1e-6 * max(rates.values(), default=0.0)
    recomputed = objective_usd(wanted, made)
    assert recomputed == pytest.approx(made.objective_usd, rel=2e-3, abs=dust_usd)


def two_pools() -> PlanRequest:
    """The first one is much the cheaper; both have caps and are away from the data."""
    pools = [pool("a", region="r1"), pool("a", region="r2")]
    offers = (offer(pools[0], 1.0), offer(pools[1], 9.0))
    what = replace(job(3.0, deadline_h=5.0), data=DataLocation("x", 10.0, HOME))
    caps = (PowerCap(200.0, 0.9, 2000.0, "made up"),)
    return PlanRequest(
        NOW,
        (JobView(what, Progress()),),
        offers,
        machines_of(offers),
        {one: replace(power(), caps=caps) for one in pools},
        Policy(
            "p",
            Objective(1.0, 0.1, 100.0),
            Risk(on_time=0.0, reserve_s=0.0),
            limits=Limits(power_caps=True),
        ),
        slot_s=3600.0,
        price_forecasts={pools[0]: series([1.0] * 5), pools[1]: series([9.0] * 5)},
        carbon_forecasts={"aws/r1": series([300.0] * 5), "aws/r2": series([300.0] * 5)},
        transfers={(HOME, region): Transfer(0.01, 10.0, "x") for region in ("aws/r1", "aws/r2")},
    )


def answered(wanted: PlanRequest) -> Plan | None:
    """The plan, None where the figure was refused as an error that says so."""
    try:
        return plan(wanted, time_limit_s=UNHURRIED_S, explain=False)
    except (InfeasibleError, SolverError):
        return None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("hour", [0, 2])
def test_an_impossible_price_forecast_is_not_planned_on(bad: float, hour: int) -> None:
    good = two_pools()
    first = good.offers[0].pool
    values = [1.0] * 5
    values[hour] = bad
    made = answered(
        replace(good, price_forecasts=dict(good.price_forecasts) | {first: series(values)})
    )
    if made is not None:
        assert {a.pool for a in made.allocations} == {good.offers[1].pool}
        assert first in {r.pool for r in made.rejections}
        assert made.objective_usd is not None
        assert math.isfinite(made.objective_usd)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_carbon_forecast_that_is_none_is_not_planned_on(bad: float) -> None:
    good = two_pools()
    values = series([300.0, bad, 300.0, 300.0, 300.0])
    made = answered(
        replace(good, carbon_forecasts=dict(good.carbon_forecasts) | {"aws/r1": values})
    )
    if made is not None:
        assert {a.pool for a in made.allocations} == {good.offers[1].pool}
        assert good.offers[0].pool in {r.pool for r in made.rejections}
        assert made.objective_usd is not None
        assert math.isfinite(made.objective_usd)


@pytest.mark.parametrize("field", ["cap_w", "speed", "busy_w"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_cap_that_is_none_is_not_used(field: str, bad: float) -> None:
    good = two_pools()
    cap = PowerCap(200.0, 0.9, 2000.0, "made up")
    if field == "cap_w":
        cap = replace(cap, cap_w=bad)
    elif field == "speed":
        cap = replace(cap, speed=bad)
    else:
        cap = replace(cap, busy_w=bad)
    powers = {one: replace(p, caps=(cap,)) for one, p in good.powers.items()}
    made = answered(replace(good, powers=powers))
    if made is not None:
        assert made.allocations
        assert all(a.power_cap_w is None for a in made.allocations)
        uncapped = replace(good, powers={p: replace(w, caps=()) for p, w in good.powers.items()})
        assert made.objective_usd == pytest.approx(plan(uncapped, explain=False).objective_usd)


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(math.nan, 10.0, "x"),
        Transfer(math.inf, 10.0, "x"),
        Transfer(-1.0, 10.0, "x"),
        Transfer(0.01, math.nan, "x"),
        Transfer(0.01, -1.0, "x"),
    ],
)
def test_a_transfer_that_is_none_is_not_planned_on(transfer: Transfer) -> None:
    good = two_pools()
    made = answered(replace(good, transfers=dict(good.transfers) | {(HOME, "aws/r1"): transfer}))
    if made is not None:
        assert {a.pool for a in made.allocations} == {good.offers[1].pool}
        assert made.objective_usd is not None
        assert math.isfinite(made.objective_usd)
