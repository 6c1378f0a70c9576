"""What is left of each limit, and what a little more of it saves when it is planned with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.account import Tenant
from costopt.domain.job import Budget, Job
from costopt.domain.market import Offer
from costopt.domain.plan import Constraint, Plan
from costopt.domain.policy import Limits, Policy, Risk
from costopt.optimize import segments
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.optimize_fixtures import job, machine, offer, plan_request, pool

SLOW, FAST = pool("a", name="slow"), pool("b")
POINTS = (("A100", 8, 1.0), ("T4", 8, 0.5))


def request(
    jobs: Sequence[Job], offers: Sequence[Offer] | None = None, quotas: tuple[Quota, ...] = ()
) -> PlanRequest:
    """A slow cheap pool and a fast expensive one; the fast one needs half the energy."""
    used = offers or (offer(SLOW, 1.0), offer(FAST, 4.0))
    slow = machine("T4", name="slow")
    machines = {o.pool: slow if o.pool.instance_type == "slow" else machine() for o in used}
    policy = Policy("p", risk=Risk(0.5, 0.0))
    return plan_request(used, *jobs, policy=policy, machines=machines, quotas=quotas)


def of(made: Plan, name: str) -> Constraint:
    return next(each for each in made.constraints if each.name.startswith(name))


def usd(made: Plan) -> float:
    assert made.objective_usd is not None
    return made.objective_usd


def test_the_price_of_an_hour_is_what_a_later_deadline_saves() -> None:
    what = job(20, deadline_h=30, points=POINTS)
    made = plan(request([what]))
    later = plan(request([replace(what, deadline_at=what.until_at + timedelta(hours=1))]))
    bound = of(made, "deadline of job (h)")
    assert bound.unit == "h"
    assert bound.slack == pytest.approx(0.0, abs=0.01)
    assert bound.shadow_price == pytest.approx(usd(made) - usd(later), rel=1e-3)
    assert usd(made) - usd(later) > 1.5


def test_a_deadline_that_is_far_off_is_worth_nothing() -> None:
    made = plan(request([job(20, deadline_h=100, points=POINTS)]))
    assert of(made, "deadline").slack > 50
    assert of(made, "deadline").shadow_price == 0.0


def test_an_energy_budget_has_the_price_of_a_kilowatt_hour() -> None:
    what = job(20, deadline_h=100, points=POINTS, budget=Budget(max_kwh=150.0))
    made = plan(request([what]))
    more = plan(request([replace(what, budget=Budget(max_kwh=151.5))]))
    bound = of(made, "max_kwh of job (kWh)")
    assert bound.slack == pytest.approx(0.0, abs=0.1)
    assert bound.shadow_price == pytest.approx((usd(made) - usd(more)) / 1.5, rel=1e-2)
    assert usd(made) - usd(more) > 0.1


@pytest.mark.parametrize("of_tenant", [False, True])
def test_budgets_of_the_policy_and_of_tenants_are_reported(of_tenant: bool) -> None:
    wanted = request([job(20, deadline_h=100, points=POINTS)])
    if of_tenant:
        wanted = replace(wanted, tenants={"default": Tenant("default", max_usd=100.0)})
    else:
        wanted = replace(wanted, policy=replace(wanted.policy, limits=Limits(max_usd=100.0)))
    made = plan(wanted)
    bound = of(made, "max_usd of tenant default" if of_tenant else "max_usd of the policy")
    assert bound.slack == pytest.approx(100 - usd(made), rel=1e-6)
    assert (bound.unit, bound.shadow_price) == ("$", 0.0)


@pytest.mark.slow
def test_a_quota_that_jobs_fight_for_has_a_price_and_the_least_room() -> None:
    """Two jobs, one cheap node at a time: the other has to take the dear pool or wait."""
    jobs = [job(20, deadline_h=24, name=name) for name in ("one", "two")]
    offers = (offer(pool("a"), 1.0), offer(pool("b", region="r2"), 3.0))
    quota = Quota("cheap", region="r1", max_nodes=1)
    made = plan(request(jobs, offers, (quota,)))
    bound = of(made, "quota cheap (nodes)")
    assert bound.unit == "nodes"
    assert bound.slack == 0.0
    assert bound.shadow_price is not None
    free = plan(request(jobs, offers))
    assert bound.shadow_price >= (usd(made) - usd(free)) * 0.9
    assert of(made, "deadline of two").slack >= 0


def test_a_quota_of_another_tenant_is_not_shown() -> None:
    wanted = request([job(20, deadline_h=100, points=POINTS)])
    made = plan(replace(wanted, tenants={"other": Tenant("other", max_nodes=3)}))
    assert [each.name for each in made.constraints] == ["deadline of job (h)"]


def test_prices_that_take_planning_again_are_left_out_where_nothing_is_to_be_explained() -> None:
    made = plan(request([job(20, deadline_h=30, points=POINTS)]), explain=False)
    assert of(made, "deadline").shadow_price is None


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=30
    ),
    st.booleans(),
)
def test_the_peak_is_the_greatest_sum_at_any_begin(
    spans: list[tuple[int, int, int]], near: bool
) -> None:
    stretches = [(begin / 4, (begin + long) / 4, float(load)) for begin, long, load in spans]
    begins = [begin for begin, _, _ in stretches if not near or begin < 1.0]
    sums = [sum(load for b, e, load in stretches if b <= at < e) for at in begins]
    assert segments._peak(stretches, near=near) == max(sums, default=0.0)
