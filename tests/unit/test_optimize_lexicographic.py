"""Further aims of an objective improve a plan without making what comes before it worse."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costopt.domain.job import Job, Progress, Resources
from costopt.domain.plan import Plan
from costopt.domain.policy import Aim, Objective, Policy, Risk
from costopt.domain.power import NodePower
from costopt.domain.series import Series
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.optimize_fixtures import NOW, job, machines_of, offer, pool, power

HUNGRY, FRUGAL, CLEAN = pool("a"), pool("b"), pool("c", region="r2")
SMALL_SLIP = 1e-4


def request(*then: Aim, tolerance: float = 0.01, what: Job | None = None) -> PlanRequest:
    """The hungry pool is the cheapest by half a percent; the clean one costs a little more."""
    offers = (offer(HUNGRY, 2.0), offer(FRUGAL, 2.01), offer(CLEAN, 2.015))
    powers: dict[object, NodePower] = {
        HUNGRY: power(6000.0),
        FRUGAL: power(3000.0),
        CLEAN: power(4000.0, gco2e_per_kwh=20.0),
    }
    policy = Policy("p", Objective(then=then, tolerance=tolerance), Risk(0.5, 0.0))
    view = JobView(what or job(20, deadline_h=60), Progress())
    return PlanRequest(
        NOW, (view,), offers, machines_of(offers), {o.pool: powers[o.pool] for o in offers}, policy
    )


def pools(made: Plan) -> set[object]:
    return {allocation.pool for allocation in made.allocations}


def test_without_further_aims_the_cheapest_is_taken() -> None:
    assert pools(plan(request())) == {HUNGRY}


def test_energy_is_saved_where_it_costs_less_than_the_tolerance() -> None:
    made = plan(request(Aim.KWH))
    assert pools(made) == {FRUGAL}
    assert made.gap is not None
    assert made.gap <= 0.01 + SMALL_SLIP


def test_energy_that_costs_more_than_the_tolerance_is_not_saved() -> None:
    made, plain = plan(request(Aim.KWH, tolerance=1e-3)), plan(request())
    assert made.objective_usd is not None
    assert plain.objective_usd is not None
    assert made.objective_usd <= plain.objective_usd * (1 + 1e-3 + SMALL_SLIP)


@pytest.mark.parametrize(("then", "chosen"), [((Aim.CO2E,), CLEAN), ((Aim.KWH, Aim.CO2E), FRUGAL)])
def test_aims_count_in_their_order(then: tuple[Aim, ...], chosen: object) -> None:
    assert pools(plan(request(*then))) == {chosen}


def test_an_earlier_finish_is_bought_for_less_than_the_tolerance() -> None:
    """Two nodes cost a fifth of a percent more than one."""
    what = job(20, deadline_h=60, resources=Resources(max_nodes=2), efficiency=0.998,
               startup_s=0.0, restore_s=0.0)  # fmt: skip
    plain, made = plan(request(what=what)), plan(request(Aim.FINISH, what=what))
    assert finish_of(plain) > NOW + timedelta(hours=20)
    assert finish_of(made) < NOW + timedelta(hours=11)


def finish_of(made: Plan) -> datetime:
    forecast = made.forecast_of("job")
    assert forecast is not None
    return forecast.finish_p50_at


def test_aims_hold_where_prices_move() -> None:
    at = (NOW, NOW + timedelta(hours=10))
    wanted = request(Aim.KWH, tolerance=0.02)
    series = {
        o.pool: Series(at, (p, p * 0.9), "made up")
        for o in wanted.offers
        if o.price_usd_per_hour and (p := o.price_usd_per_hour.value)
    }
    moving = replace(wanted, price_forecasts=series)
    assert pools(plan(moving, explain=False)) == {FRUGAL}
