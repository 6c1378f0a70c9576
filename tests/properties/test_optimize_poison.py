"""Numbers that poison solvers give a clear status, never an exception or a wrong plan."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Resources
from costopt.domain.market import CapacityType
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import NOW, UNHURRIED_S, job, machines_of, offer, pool, power

KINDS = (CapacityType.SPOT, CapacityType.ON_DEMAND)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    offers = []
    for zone in "abc"[: draw(st.integers(0, 3))]:
        hazard = draw(st.sampled_from([0.0, 1e-9, 0.1, 30.0, 1e3]))
        one = offer(
            pool(zone, kind=draw(st.sampled_from(KINDS))),
            draw(st.sampled_from([1e-5, 1e-2, 3.0, 1e5])),
            hazard=hazard,
            hazard_high=hazard * draw(st.sampled_from([1.0, 100.0])),
            available=draw(st.sampled_from([None, 0, 1])),
        )
        share = draw(st.sampled_from([None, 0.0, 0.3, 1.0]))
        if share is not None:
            one = replace(one, availability=Estimate.exact(share, Basis.MEASURED, "made up"))
        offers.append(one)
    what = job(
        draw(st.sampled_from([0.0, 1e-6, 0.01, 5.0, 1e12 / 3600])),
        deadline_h=draw(st.sampled_from([-1.0, 0.001, 0.1, 6.0, 1e4])),
        start_h=draw(st.sampled_from([0.0, 0.5, 7.0])),
        resources=Resources(max_nodes=draw(st.integers(1, 3))),
        startup_s=draw(st.sampled_from([0.0, 120.0])),
        save_s=draw(st.sampled_from([0.0, 10.0])),
    )
    policy = Policy(
        "p",
        objective=Objective(draw(st.sampled_from([0.0, 1.0])), draw(st.sampled_from([0.0, 1e3]))),
        risk=Risk(draw(st.sampled_from([0.0, 0.95, 1.0])), draw(st.sampled_from([0.0, 600.0]))),
        limits=Limits(max_usd=draw(st.sampled_from([None, 0.0, 50.0]))),
    )
    return PlanRequest(
        NOW,
        (JobView(what, Progress()),),
        tuple(offers),
        machines_of(offers),
        {o.pool: power(draw(st.sampled_from([0.0, 4000.0]))) for o in offers},
        policy,
    )


@settings(max_examples=150, deadline=None)
@given(requests())
def test_a_plan_is_right_or_says_why_there_is_none(wanted: PlanRequest) -> None:
    made = plan(wanted, time_limit_s=UNHURRIED_S)
    what = wanted.jobs[0].job
    if made.status is PlanStatus.INFEASIBLE:
        assert made.binding
        assert not made.allocations
        return
    if what.work.amount == 0:
        assert made.status is PlanStatus.EMPTY
        return
    assert made.allocations
    assert made.objective_usd is not None
    assert math.isfinite(made.objective_usd)
    due_at = what.until_at - timedelta(seconds=wanted.policy.risk.reserve_s)
    assert max(a.end_at for a in made.allocations) <= due_at + timedelta(seconds=1)
    assert min(a.start_at for a in made.allocations) >= max(NOW, what.start_at)
    rate = {a.pool: next(o for o in wanted.offers if o.pool == a.pool) for a in made.allocations}
    useful_s = sum(a.nodes * (a.end_at - a.start_at).total_seconds() for a in made.allocations)
    assert useful_s >= what.work.amount * 0.999
    if wanted.policy.limits.max_usd is not None and all(
        o.availability is None or o.availability.value == 1.0 for o in rate.values()
    ):
        prices = {o.pool: o.price_usd_per_hour for o in wanted.offers}
        usd = 0.0
        for allocation in made.allocations:
            price = prices[allocation.pool]
            assert price is not None
            usd += allocation.node_hours * price.value
        assert usd <= wanted.policy.limits.max_usd * 1.001 + 1e-6
