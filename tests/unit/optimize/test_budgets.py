"""A job's own budget holds for what its plan is expected to come to as simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from costopt.domain.estimate import Series
from costopt.domain.job import Budget, Job, Resources
from costopt.domain.market import CapacityType, Offer
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Objective, ObjectiveTerm, Policy, Risk
from costopt.optimize.frontier import frontier
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.known_figure import known
from tests.support.optimize_fixtures import NOW, UNHURRIED_S, job, offer, plan_request, pool, power

POWER_ERROR = 0.1


def request(offers: Sequence[Offer], what: Job, *then: ObjectiveTerm) -> PlanRequest:
    """Pools draw between 2 and 6 kW a node, those that cost more the less."""
    prices = [o.price_usd_per_hour.value for o in offers if o.price_usd_per_hour]
    watts = np.interp(prices, [1.0, 5.0], [6000.0, 2000.0]).tolist()
    powers = {o.pool: power(w) for o, w in zip(offers, watts, strict=True)}
    policy = Policy("p", Objective(then=then, tolerance=0.5), Risk(0.95, 0.0))
    return plan_request(offers, what, policy=policy, powers=powers)


def market(seed: int) -> list[Offer]:
    """Spot that is interrupted more often than not beside a safe pool."""
    rng = np.random.default_rng(seed)
    hazards = [0.05, 0.1, 0.2]
    spot = [
        offer(pool(zone), float(rng.uniform(1.0, 2.0)), hazard=hazard, hazard_high=4 * hazard)
        for zone, hazard in zip("abc", hazards, strict=True)
    ]
    return [*spot, offer(pool("z", kind=CapacityType.ON_DEMAND), 5.0)]


def shaky_job(budget: Budget | None = None) -> Job:
    return job(20, deadline_h=30, resources=Resources(max_nodes=2), budget=budget)


def figures(made: Plan) -> tuple[float, float]:
    """What 95 % of the runs do not exceed, as the policy asks."""
    forecast = made.forecast_of("job")
    assert forecast is not None
    return forecast.usd_p95, known(forecast.kwh_high) / (1 + POWER_ERROR)


@pytest.mark.parametrize(
    "then", [(), (ObjectiveTerm.FINISH,), (ObjectiveTerm.USD, ObjectiveTerm.KWH)]
)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_a_plan_is_expected_to_keep_the_job_s_budget(
    seed: int, then: tuple[ObjectiveTerm, ...]
) -> None:
    """Budgets just below what the cheapest plan comes to, and far enough for others to fit."""
    usd, kwh = figures(plan(request(market(seed), shaky_job()), explain=False))
    for budget in (Budget(max_kwh=0.97 * kwh), Budget(max_usd=0.999 * usd), Budget(max_usd=usd)):
        made = plan(request(market(seed), shaky_job(budget), *then))
        if made.status is PlanStatus.INFEASIBLE:
            assert made.binding is not None
            assert made.binding.startswith("budget: "), made.binding
            continue
        likely_usd, likely_kwh = figures(made)
        assert budget.max_usd is None or likely_usd <= budget.max_usd
        assert budget.max_kwh is None or likely_kwh <= budget.max_kwh


def test_a_smaller_kwh_budget_is_met_by_a_plan_that_draws_less() -> None:
    """In the model a plan of exactly the budget fits; as simulated it comes to more."""
    _, kwh = figures(plan(request(market(0), shaky_job()), explain=False))
    made = plan(request(market(0), shaky_job(Budget(max_kwh=0.9 * kwh))), explain=False)
    assert made.status is not PlanStatus.INFEASIBLE
    assert figures(made)[1] <= 0.9 * kwh


@pytest.mark.parametrize("seed", [0, 2, 8, 11])
def test_a_plan_fits_a_budget_of_its_own_total(seed: int) -> None:
    """Whatever the model expects, which knows nothing of changes to the safe pool."""
    plain = plan(request(market(seed), shaky_job()), explain=False)
    usd, kwh = (1.01 * figure for figure in figures(plain))
    for budget in (Budget(max_usd=usd), Budget(max_kwh=kwh), Budget(max_usd=usd, max_kwh=kwh)):
        made = plan(request(market(seed), shaky_job(budget)))
        assert made.status is not PlanStatus.INFEASIBLE
        assert all(limit.slack >= 0 for limit in made.constraints)


def test_no_point_of_the_frontier_exceeds_the_budget() -> None:
    usd, kwh = figures(plan(request(market(0), shaky_job()), explain=False))
    budget = Budget(max_usd=1.2 * usd, max_kwh=kwh)
    found = frontier(request(market(0), shaky_job(budget)), time_limit_s=UNHURRIED_S)
    assert found
    assert max(point.forecast.usd_p50 for point in found) <= 1.2 * usd
    assert max(known(point.forecast.kwh) for point in found) <= kwh


def test_dollars_of_a_month_hold_for_a_plan_within_it() -> None:
    usd, _ = figures(plan(request(market(0), shaky_job()), explain=False))
    enough, too_little = Budget(max_usd_per_month=1.01 * usd), Budget(max_usd_per_month=usd / 2)
    assert plan(request(market(0), shaky_job(enough))).status is not PlanStatus.INFEASIBLE
    made = plan(request(market(0), shaky_job(too_little)))
    assert made.binding is not None
    assert made.binding.startswith("budget: the max_usd_per_month")


@pytest.mark.parametrize(
    ("end", "most"), [((2026, 3, 31), 10.0), ((2026, 4, 1), 20.0), ((2027, 3, 1), 100.0)]
)
def test_each_calendar_month_that_is_touched_counts(end: tuple[int, int, int], most: float) -> None:
    budget = Budget(max_usd=100.0, max_usd_per_month=10.0)
    assert budget.max_usd_between(NOW, datetime(*end, 12, tzinfo=UTC)) == most


def test_a_budget_that_no_plan_keeps_is_what_binds() -> None:
    wanted = request(market(0), shaky_job())
    (view,) = wanted.jobs
    usd, _ = figures(plan(wanted, explain=False))
    poor = replace(view.job, budget=Budget(max_usd=usd / 2))
    made = plan(replace(wanted, jobs=(replace(view, job=poor),)))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert "max_usd" in made.binding


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_between_the_median_and_the_95th_percentile_is_kept_as_often_as_asked(
    seed: int,
) -> None:
    free = plan(request(market(seed), shaky_job()), time_limit_s=UNHURRIED_S).forecast_of("job")
    assert free is not None
    assert free.within_budget is None
    between = Budget(max_usd=(free.usd_p50 + free.usd_p95) / 2)
    held = plan(request(market(seed), shaky_job(between)), time_limit_s=UNHURRIED_S)
    if held.status is PlanStatus.INFEASIBLE:
        assert held.binding is not None
        assert held.binding.startswith("budget: ")
    else:
        forecast = held.forecast_of("job")
        assert forecast is not None
        assert forecast.within_budget is not None
        assert forecast.within_budget.is_at_least(0.95)
        assert forecast.on_time.value <= forecast.within_budget.value
    ample = plan(request(market(seed), shaky_job(Budget(max_usd=1e6))), time_limit_s=UNHURRIED_S)
    sure = ample.forecast_of("job")
    assert sure is not None
    assert sure.within_budget is not None
    assert sure.within_budget.high == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_a_hair_below_what_the_cheapest_plan_draws_is_kept(seed: int) -> None:
    """The model's energy is below the budget, so that a plan must keep to less than the model's."""
    _, kwh = figures(plan(request(market(seed), shaky_job()), explain=False))
    for share in (0.9999, 0.999, 0.98):
        budget = Budget(max_kwh=share * kwh)
        made = plan(request(market(seed), shaky_job(budget)), explain=False)
        assert made.status is PlanStatus.OPTIMAL
        assert figures(made)[1] <= share * kwh


def test_a_run_that_is_cut_short_does_not_keep_a_budget() -> None:
    """It costs less than the plan, which exceeds the budget: nothing ends it where spot is lost."""
    gang = offer(pool("a"), 7.4, hazard=0.4)
    cleaner = Series((NOW, NOW + timedelta(hours=0.5)), (300.0, 180.0), "made up")
    what = job(
        0.91, deadline_h=0.789, resources=Resources(max_nodes=2), startup_s=60.0, save_s=2.0,
        points=(("A100", 8, 1.0), ("A100", 16, 1.8)), budget=Budget(max_usd=7.7),
    )  # fmt: skip
    wanted = replace(
        request([gang], what),
        policy=Policy("p", Objective(usd_per_tonne_co2e=100.0), Risk(0.0, 0.0)),
        carbon_forecasts={f"aws/{gang.pool.region}": cleaner},
    )
    made = plan(wanted, explain=False)
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert made.binding.startswith("budget: ")
