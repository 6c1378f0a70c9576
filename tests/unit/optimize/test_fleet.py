"""Plans over time: tenants, pauses, shared limits, power caps, and plans made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from costopt.domain.account import Tenant
from costopt.domain.estimate import Series
from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.plan import Plan, PlanStatus
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.power import NodePower, PowerCap
from costopt.optimize.colgen.generation import ColumnGeneration
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.optimize_fixtures import (
    NOW,
    UNHURRIED_S,
    hourly,
    job,
    offer,
    plan_request,
    pool,
    power,
)

CHEAP, EXPENSIVE = pool("a"), pool("b", kind=CapacityType.ON_DEMAND)


def request(
    jobs: tuple[Job, ...],
    *,
    offers: tuple[Offer, ...] = (offer(CHEAP, 1.0), offer(EXPENSIVE, 4.0)),
    quotas: tuple[Quota, ...] = (),
    limits: Limits | None = None,
    objective: Objective | None = None,
    prices: Mapping[Pool, list[float]] | None = None,
    tenants: tuple[Tenant, ...] = (),
    watts: NodePower | None = None,
) -> PlanRequest:
    """Jobs from now on, hourly slots, no margin for risk; ``prices`` are by hour."""
    return plan_request(
        offers,
        *jobs,
        policy=Policy("p", objective or Objective(), Risk(0.0, 0.0), limits=limits or Limits()),
        powers={o.pool: watts or power() for o in offers},
        quotas=quotas,
        slot_s=3600.0,
        price_forecasts=hourly(prices or {}),
        tenants={tenant.name: tenant for tenant in tenants},
    )


def hours_of(made: Plan, name: str) -> list[tuple[float, float]]:
    """When a job holds nodes, in hours from now."""
    spans = [a for a in made.allocations if a.job == name]
    return [
        ((a.start_at - NOW).total_seconds() / 3600, (a.end_at - NOW).total_seconds() / 3600)
        for a in sorted(spans, key=lambda a: a.start_at)
    ]


def test_a_job_waits_for_the_cheap_hours() -> None:
    prices = {CHEAP: [3.0, 3.0, 1.0, 1.0, 3.0, 3.0], EXPENSIVE: [4.0] * 6}
    made = plan(request((job(1.5, deadline_h=6.0, save_s=0.0),), prices=prices), explain=False)
    ((begin, end),) = hours_of(made, "job")
    assert begin == pytest.approx(2.0)
    assert end < 4.0
    assert made.objective_usd == pytest.approx(1.5 + 0.05, rel=0.02)


def test_a_phase_that_may_not_pause_runs_through_the_expensive_hours() -> None:
    prices = {CHEAP: [1.0, 5.0, 1.0, 9.0], EXPENSIVE: [9.0] * 4}
    pausing = job(1.9, deadline_h=4.0, save_s=0.0, startup_s=0.0, restore_s=0.0)
    steady = replace(pausing, phases=(Phase("train", 1.0, 1, 8, may_pause=False),))
    assert hours_of(plan(request((pausing,), prices=prices), explain=False), "job")[1][0] == 2.0
    made = plan(request((steady,), prices=prices), explain=False)
    spans = hours_of(made, "job")
    assert all(a[1] == pytest.approx(b[0], abs=1e-3) for a, b in pairwise(spans))


def test_where_room_is_short_a_tenant_does_not_starve() -> None:
    many = tuple(replace(job(3.0, deadline_h=4.0, name=f"m{i}"), tenant="many") for i in range(4))
    one = replace(job(3.0, deadline_h=4.0, name="one"), tenant="few")
    quota = (Quota("all", max_nodes=2),)
    made = plan(request((*many, one), quotas=quota), time_limit_s=UNHURRIED_S, explain=False)
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding
    assert "one" not in made.unserved
    assert len(made.unserved) == 3
    assert {a.job for a in made.allocations} == {"one", *(j.name for j in many)} - set(
        made.unserved
    )


@pytest.mark.slow
def test_weights_divide_what_is_short() -> None:
    heavy = tuple(replace(job(3.0, deadline_h=4.0, name=f"h{i}"), tenant="h") for i in range(4))
    light = tuple(replace(job(3.0, deadline_h=4.0, name=f"l{i}"), tenant="l") for i in range(4))
    tenants = (Tenant("h", weight=3.0), Tenant("l", weight=1.0))
    quota = (Quota("all", max_nodes=4),)
    made = plan(
        request((*heavy, *light), quotas=quota, tenants=tenants),
        time_limit_s=UNHURRIED_S,
        explain=False,
    )
    served = {a.job[0] for a in made.allocations}
    assert served == {"h", "l"}
    assert len({a.job for a in made.allocations if a.job[0] == "h"}) == 3
    assert len({a.job for a in made.allocations if a.job[0] == "l"}) == 1


def test_the_site_never_draws_more_than_it_may() -> None:
    jobs = tuple(job(3.0, deadline_h=8.0, name=f"j{i}") for i in range(2))
    made = plan(request(jobs, limits=Limits(max_kw=5.0)), time_limit_s=UNHURRIED_S, explain=False)
    assert made.status is not PlanStatus.INFEASIBLE
    first, second = hours_of(made, "j0"), hours_of(made, "j1")
    assert not any(a < d - 1e-6 and c < b - 1e-6 for a, b in first for c, d in second)


def test_dollars_per_hour_are_held_at_the_prices_of_the_hour() -> None:
    prices = {CHEAP: [1.0, 1.0, 3.0, 3.0, 3.0, 3.0], EXPENSIVE: [9.0] * 6}
    jobs = tuple(job(1.5, deadline_h=6.0, name=f"j{i}", save_s=0.0) for i in range(2))
    wanted = request(jobs, prices=prices, limits=Limits(max_usd_per_hour=4.0))
    made = plan(wanted, time_limit_s=UNHURRIED_S, explain=False)
    assert made.status is not PlanStatus.INFEASIBLE
    for hour in range(6):
        running = sum(
            a.pool == CHEAP and a.start_at < NOW + timedelta(hours=hour + 0.99)
            and a.end_at > NOW + timedelta(hours=hour + 0.01)
            for a in made.allocations
        )  # fmt: skip
        assert running * prices[CHEAP][hour] <= 4.0


def test_slack_is_spent_on_a_lower_power_cap_where_energy_weighs() -> None:
    watts = replace(power(), caps=(PowerCap(250.0, 0.9, 3000.0, "made up"),))
    wanted = request(
        (job(4.0, deadline_h=8.0),),
        limits=Limits(power_caps=True),
        objective=Objective(usd=0.001, usd_per_kwh=1.0),
        watts=watts,
        prices={CHEAP: [1.0] * 8},
    )
    assert {a.power_cap_w for a in plan(wanted, explain=False).allocations} == {250.0}
    tight = request(
        (job(7.7, deadline_h=8.0),),
        limits=Limits(power_caps=True),
        objective=Objective(usd=0.001, usd_per_kwh=1.0),
        watts=watts,
        prices={CHEAP: [1.0] * 8},
    )
    assert None in {a.power_cap_w for a in plan(tight, explain=False).allocations}


@pytest.mark.slow
def test_a_plan_made_again_keeps_what_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as near to its bound as it was, so no column is generated for it."""
    prices = {CHEAP: [2.0, 1.0, 3.0, 1.0, 2.0, 1.0] * 2, EXPENSIVE: [4.0] * 12}
    jobs = tuple(job(3.0, deadline_h=10.0, name=f"j{i}") for i in range(7))
    wanted = request(jobs, prices=prices, quotas=(Quota("all", max_nodes=4),))
    warm = WarmStart()
    first = plan(wanted, time_limit_s=UNHURRIED_S, explain=False, warm=warm)
    assert warm.gap is not None
    monkeypatch.delattr(ColumnGeneration, "run")
    again = plan(wanted, time_limit_s=UNHURRIED_S, explain=False, warm=warm)
    assert again.allocations == first.allocations
    with pytest.raises(AttributeError, match="run"):
        plan(wanted, time_limit_s=UNHURRIED_S, explain=False)


def test_a_job_without_time_does_not_take_the_others_down() -> None:
    late = job(9.0, deadline_h=2.0, name="late")
    made = plan(request((job(1.0, deadline_h=4.0, name="fine"), late)), explain=False)
    assert made.status is PlanStatus.INFEASIBLE
    assert made.unserved == ("late",)
    assert {a.job for a in made.allocations} == {"fine"}
    assert made.binding
    assert "late" in made.binding


def test_gangs_change_size_along_the_scaling_curve() -> None:
    points = (("A100", 8, 1.0), ("A100", 16, 1.9))
    elastic = job(4.0, deadline_h=3.0, resources=Resources(max_nodes=2), points=points)
    made = plan(request((elastic,), prices={CHEAP: [1.0, 1.0, 9.0]}), explain=False)
    assert made.status is not PlanStatus.INFEASIBLE
    assert max(a.nodes for a in made.allocations) == 2


@pytest.mark.parametrize("years", [10, 1000, 7900])
def test_a_deadline_in_the_far_future_is_planned(years: int) -> None:
    later = replace(request((job(deadline_h=years * 8760.0),)), slot_s=None)
    assert plan(later, explain=True).status is PlanStatus.OPTIMAL
    prices = {CHEAP: Series((NOW, NOW + timedelta(hours=1)), (1.0, 2.0), "x")}
    moving = plan(replace(later, price_forecasts=prices), explain=False)
    assert moving.status is PlanStatus.OPTIMAL
