"""Plans with pools of unknown power: only where nothing counts energy, which is then unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from costopt.domain.account import Quota
from costopt.domain.job import Budget, Job, Resources
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.plan import Forecast, PlanStatus
from costopt.domain.policy import Limits, Objective, ObjectiveTerm, Policy, Risk, Rule, RuleSignal
from costopt.domain.power import NodePower
from costopt.optimize.frontier import frontier
from costopt.optimize.pareto import non_dominated_mask, surely_unbeaten
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.known_figure import known
from tests.support.optimize_fixtures import (
    UNHURRIED_S,
    hourly,
    job,
    offer,
    plan_request,
    pool,
    power,
)

UNCOUNTED = Policy("p", risk=Risk(on_time=0.5, reserve_s=0.0))
NIGHT = Rule("night", RuleSignal.TIME_OF_DAY, 22.0, 6.0, Limits(max_kw=40.0))
CHEAP, EXPENSIVE = offer(pool("a"), 1.0), offer(pool("b"), 2.0)
"""The power of ``CHEAP`` is unknown."""


def request(
    what: Sequence[Job] = (),
    policy: Policy = UNCOUNTED,
    quotas: tuple[Quota, ...] = (),
    offers: Sequence[Offer] = (CHEAP, EXPENSIVE),
    powers: Mapping[Pool, NodePower] | None = None,
    prices: Mapping[Pool, Sequence[float]] | None = None,
) -> PlanRequest:
    known = {EXPENSIVE.pool: power()} if powers is None else powers
    return plan_request(
        offers,
        *what,
        policy=policy,
        powers=known,
        quotas=quotas,
        price_forecasts=hourly(prices or {}),
    )


def energy(of: Forecast) -> tuple[object, ...]:
    return of.kwh, of.kwh_low, of.kwh_high, of.kwh_error, of.gco2e, of.energy_basis


UNKNOWN = (None,) * 6


def test_a_policy_of_dollars_alone_plans_on_a_pool_of_unknown_power() -> None:
    made = plan(request())
    assert made.status is PlanStatus.OPTIMAL
    assert {a.pool for a in made.allocations} == {CHEAP.pool}
    assert not made.rejections
    assert energy(known(made.forecast_of("job"))) == UNKNOWN
    by_pool = {candidate.pool: candidate.forecast for candidate in made.candidates}
    assert energy(by_pool[CHEAP.pool]) == UNKNOWN
    assert None not in energy(by_pool[EXPENSIVE.pool])


@pytest.mark.parametrize(
    ("policy", "what", "quotas"),
    [
        (replace(UNCOUNTED, objective=Objective(usd_per_kwh=1e-3)), job(), ()),
        (replace(UNCOUNTED, objective=Objective(usd_per_tonne_co2e=1.0)), job(), ()),
        (replace(UNCOUNTED, objective=Objective(then=(ObjectiveTerm.KWH,))), job(), ()),
        (replace(UNCOUNTED, objective=Objective(then=(ObjectiveTerm.CO2E,))), job(), ()),
        (replace(UNCOUNTED, limits=Limits(max_kw=100.0)), job(), ()),
        (replace(UNCOUNTED, rules=(NIGHT,)), job(), ()),
        (UNCOUNTED, job(budget=Budget(max_kwh=1e6)), ()),
        (UNCOUNTED, job(), (Quota("site", max_kw=100.0),)),
        (UNCOUNTED, job(), (Quota("team", tenant="default", max_kw=100.0),)),
    ],
)
def test_what_counts_energy_excludes_a_pool_of_unknown_power(
    policy: Policy, what: Job, quotas: tuple[Quota, ...]
) -> None:
    made = plan(request([what], policy, quotas))
    assert {a.pool for a in made.allocations} == {EXPENSIVE.pool}
    assert [(r.pool, r.code) for r in made.rejections] == [(CHEAP.pool, "power_unknown")]
    assert known(known(made.forecast_of("job")).kwh) > 0


@pytest.mark.parametrize(
    "quota",
    [Quota("elsewhere", region="r9", max_kw=1.0), Quota("others", tenant="other", max_kw=1.0)],
)
def test_a_limit_in_kilowatts_of_others_does_not_exclude_it(quota: Quota) -> None:
    made = plan(request(quotas=(quota,)))
    assert {a.pool for a in made.allocations} == {CHEAP.pool}


def test_only_the_job_with_a_budget_in_kwh_needs_known_power() -> None:
    counted = job(name="counted", budget=Budget(max_kwh=1e6))
    made = plan(request([job(name="free"), counted]), time_limit_s=UNHURRIED_S)
    used = {a.job: a.pool for a in made.allocations}
    assert used == {"free": CHEAP.pool, "counted": EXPENSIVE.pool}
    assert energy(known(made.forecast_of("free"))) == UNKNOWN
    assert known(known(made.forecast_of("counted")).kwh) > 0


def test_where_prices_move_energy_is_unknown_too() -> None:
    prices = {CHEAP.pool: [3.0, 3.0, 1.0, 1.0, 1.0, 3.0], EXPENSIVE.pool: [4.0] * 6}
    made = plan(request([job(3.0, deadline_h=6.0)], prices=prices), time_limit_s=UNHURRIED_S)
    assert {a.pool for a in made.allocations} == {CHEAP.pool}
    assert energy(known(made.forecast_of("job"))) == UNKNOWN


@pytest.mark.filterwarnings("error")
def test_energy_is_unknown_where_the_fallback_s_is() -> None:
    spot = offer(pool("a"), 1.0, hazard=0.5)
    uninterruptible = offer(pool("a", kind=CapacityType.ON_DEMAND), 3.0)
    tight = job(10.0, deadline_h=10.8)
    made = plan(request([tight], offers=[spot, uninterruptible], powers={spot.pool: power()}))
    on_spot = next(c.forecast for c in made.candidates if c.pool == spot.pool)
    assert on_spot.falls_back.value > 0.5
    assert on_spot.kwh is None
    calm = replace(spot, hazard_per_hour=CHEAP.hazard_per_hour)
    made = plan(request([job()], offers=[calm, uninterruptible], powers={spot.pool: power()}))
    on_spot = next(c.forecast for c in made.candidates if c.pool == spot.pool)
    assert on_spot.falls_back.value < 0.01
    assert known(on_spot.kwh) > 0


@pytest.mark.parametrize("moving", [False, True])
def test_the_frontier_holds_the_plan_of_unknown_energy_beside_the_others(moving: bool) -> None:
    frugal = offer(pool("c"), 3.0)
    powers = {EXPENSIVE.pool: power(), frugal.pool: power(1000.0)}
    offers = (CHEAP, EXPENSIVE, frugal)
    prices = {o.pool: [known(o.price_usd_per_hour).value] * 24 for o in offers if moving}
    found = frontier(request(offers=offers, powers=powers, prices=prices), time_limit_s=UNHURRIED_S)
    assert [p.kwh for p in found if {a.pool for a in p.allocations} == {CHEAP.pool}] == [None]
    counted = {frozenset(a.pool for a in p.allocations): known(p.kwh) for p in found if p.kwh}
    assert counted[frozenset({EXPENSIVE.pool})] > counted[frozenset({frugal.pool})] > 0
    assert all((p.kwh is None) == (p.forecast.kwh is None) for p in found)


def test_where_all_power_is_unknown_the_frontier_is_of_dollars_and_finish() -> None:
    several = job(10, deadline_h=12, resources=Resources(max_nodes=3), points=[("A100", 8, 1.0)])
    found = frontier(request([several], powers={}), time_limit_s=UNHURRIED_S)
    assert len(found) > 1
    assert all(p.kwh is None for p in found)
    finishes = [p.forecast.finish_p50_at for p in found]
    assert finishes == sorted(finishes, reverse=True)
    assert frontier(request([job(budget=Budget(max_kwh=1e6))], powers={})) == ()


def test_unknown_energy_neither_beats_nor_is_beaten_by_known() -> None:
    nan = np.nan
    figures = np.array([(1.0, 5.0, 1.0), (2.0, nan, 2.0), (0.5, nan, 1.0), (3.0, 1.0, 3.0)])
    assert non_dominated_mask(figures) == [True, False, True, True]
    forecast = known(plan(request()).forecast_of("job"))
    cheaper = replace(forecast, usd_mean=forecast.usd_mean / 2)
    sure = replace(forecast, kwh=1.0, kwh_error=0.0, usd_mean=forecast.usd_mean * 9)
    assert surely_unbeaten([forecast, cheaper, sure]) == [False, True, True]
