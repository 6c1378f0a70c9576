"""Plans of one job: what is chosen, what it costs, and what is said where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costopt.domain.errors import InfeasibleError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Budget, Job, Phase, Resources
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.progress import GangState, Progress
from costopt.domain.view import JobView
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.known_figure import known
from tests.support.optimize_fixtures import NOW, job, machine, offer, plan_request, pool, power

CERTAIN = Policy("certain", risk=Risk(on_time=0.5, reserve_s=0.0))
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def request(
    offers: Sequence[Offer],
    what: Job | None = None,
    *,
    progress: Progress | None = None,
    nodes: tuple[Node, ...] = (),
    policy: Policy = CERTAIN,
    **more: Any,
) -> PlanRequest:
    view = JobView(what or job(), progress or Progress(), nodes)
    return plan_request(offers, view, policy=policy, **more)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_cheapest_pool_does_the_whole_job(solver: str) -> None:
    cheap, expensive = offer(pool("a"), 2.0), offer(pool("b"), 3.0)
    made = plan(request([expensive, cheap], job(10)), solver=solver)
    assert made.status is PlanStatus.OPTIMAL
    (allocation,) = made.allocations
    assert (allocation.pool, allocation.nodes) == (cheap.pool, 1)
    # 10 h of work, saves of 10 s every 1,800 s, and 120 s of start-up
    assert made.objective_usd == pytest.approx(2.0 * (10 * 1810 / 1800 + 1 / 30), rel=1e-4)
    assert made.objective_usd is not None
    assert made.bound_usd is not None
    assert made.bound_usd <= made.objective_usd
    assert made.gap is not None
    assert made.gap <= 0.005
    assert made.solver == solver


def test_a_tight_deadline_buys_more_nodes() -> None:
    offers = [offer(pool(), 2.0)]
    wide = Resources(max_nodes=4)
    relaxed = plan(request(offers, job(20, deadline_h=30, resources=wide)))
    tight = plan(request(offers, job(20, deadline_h=12, resources=wide)))
    assert max(a.nodes for a in relaxed.allocations) == 1
    assert max(a.nodes for a in tight.allocations) > 1
    assert tight.objective_usd is not None
    assert relaxed.objective_usd is not None
    assert tight.objective_usd > relaxed.objective_usd
    assert max(a.end_at for a in tight.allocations) <= NOW + timedelta(hours=12)


def test_an_impossible_deadline_names_hours_needed_and_left() -> None:
    made = plan(request([offer(pool(), 2.0)], job(91, deadline_h=72)))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert made.binding.startswith("deadline")
    assert "needs 91.5 h" in made.binding
    assert "72.0 h are left" in made.binding
    assert made.allocations == ()
    assert made.candidates[0].rejection is not None
    assert made.candidates[0].rejection.code == "late"


def test_a_deadline_in_the_past_is_the_binding_constraint() -> None:
    made = plan(request([offer(pool(), 2.0)], job(1, deadline_h=-1)))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert made.binding.startswith("deadline")


def test_the_risk_binds_where_the_margin_does_not_fit() -> None:
    shaky = offer(pool(), 2.0, hazard=0.2, hazard_high=0.6)
    made = plan(request([shaky], job(10, deadline_h=11), policy=Policy("p", risk=Risk(0.99, 0))))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert made.binding.startswith("risk")
    assert plan(request([shaky], job(10, deadline_h=11))).status is PlanStatus.OPTIMAL


def test_a_budget_binds() -> None:
    made = plan(request([offer(pool(), 2.0)], job(10, budget=Budget(max_usd=5.0))))
    assert made.binding is not None
    assert made.binding.startswith("budget: the max_usd of 5")


def test_a_budget_per_hour_binds_each_job_alone() -> None:
    held = job(10, budget=Budget(max_usd_per_hour=1.5))
    made = plan(request([offer(pool(), 2.0)], held))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding == "budget: the max_usd_per_hour of 1.5 of job 'job'"
    assert {r.reason for r in made.rejections} == {"the smallest gang costs more than 1.5 $/h"}
    free = replace(job(10), name="free")
    assert plan(request([offer(pool(), 2.0)], free)).status is PlanStatus.OPTIMAL


def test_a_policy_budget_binds() -> None:
    policy = replace(CERTAIN, limits=Limits(max_usd=5.0))
    made = plan(request([offer(pool(), 2.0)], job(10), policy=policy))
    assert made.binding is not None
    assert "max_usd of 5" in made.binding


def test_a_gang_that_waits_for_its_nodes_takes_less_energy_and_the_same_room() -> None:
    """Two nodes at an efficiency of 0.6; a kW limit counts what they can draw."""
    two = job(10, resources=Resources(min_nodes=2, max_nodes=2), efficiency=0.6)
    offers = [offer(pool(), 2.0)]
    kwh, powers = [], {}
    for share in (0.0, 0.5):
        powers = {offers[0].pool: replace(power(), communication_share=share)}
        made = plan(request(offers, two, powers=powers))
        kwh.append(known(known(made.forecast_of("job")).kwh))
    idle_kwh = 2 * 1.0 * 1.2 * 180 / 3600
    assert kwh[1] - idle_kwh == pytest.approx((1 - 0.5 * 0.4) * (kwh[0] - idle_kwh), rel=0.01)
    narrow = replace(CERTAIN, limits=Limits(max_kw=9.5))
    assert plan(request(offers, two, powers=powers, policy=narrow)).status is PlanStatus.INFEASIBLE


def test_a_kwh_budget_moves_the_job_to_the_frugal_pool() -> None:
    hungry, frugal = offer(pool("a"), 2.0), offer(pool("b"), 3.0)
    powers = {hungry.pool: power(6000), frugal.pool: power(2000)}
    free = plan(request([hungry, frugal], job(10), powers=powers))
    held = plan(request([hungry, frugal], job(10, budget=Budget(max_kwh=30)), powers=powers))
    assert {a.pool for a in free.allocations} == {hungry.pool}
    assert frugal.pool in {a.pool for a in held.allocations}
    assert held.forecast_of("job") is not None
    assert known(known(held.forecast_of("job")).kwh) <= 30.0 + 1e-9


@pytest.mark.parametrize(
    ("quota", "what", "binding"),
    [
        (
            Quota("A100 in r1", region="r1", gpu_model="A100", max_gpus=8),
            job(20, deadline_h=12, resources=Resources(max_nodes=4)),
            "quota: A100 in r1",
        ),
        (Quota("none", max_gpus=4), job(), "quota: none"),
        (Quota("wide", max_gpus=64), job(91), "deadline"),
    ],
)
def test_the_quota_that_binds_is_named_and_no_other(quota: Quota, what: Job, binding: str) -> None:
    made = plan(request([offer(pool(), 2.0)], what, quotas=(quota,)))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert made.binding.startswith(binding)


def test_no_offer_fits_says_the_most_common_reason() -> None:
    offers = [offer(pool(z), 2.0) for z in "abc"]
    made = plan(request(offers, job(resources=Resources(gpu_models=("H100",)))))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert "none of 3 offers" in made.binding
    assert "GPU A100-SXM4-40GB not among" in made.binding


def test_no_offers_at_all() -> None:
    made = plan(request([]))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.binding is not None
    assert "no offers" in made.binding


def test_work_that_is_done_is_an_empty_plan() -> None:
    done = Progress(done_units=36000.0, saved_units=36000.0)
    made = plan(request([offer(pool(), 2.0)], job(10), progress=done))
    assert made.status is PlanStatus.EMPTY
    assert made.allocations == ()
    assert plan(request([offer(pool(), 2.0)], job(0.0))).status is PlanStatus.EMPTY


def test_a_present_shortage_counts_for_an_hour_only() -> None:
    gone, here = offer(pool("a"), 1.0, available=0), offer(pool("b"), 10.0)
    made = plan(request([gone, here], job(5, deadline_h=20)))
    assert {a.pool for a in made.allocations} == {gone.pool}
    assert min(a.start_at for a in made.allocations) >= NOW + timedelta(hours=1)
    hurried = plan(request([gone, here], job(5, deadline_h=5.5)))
    assert hurried.allocations[0].pool == here.pool
    assert hurried.allocations[0].start_at == NOW


def node_in(where: Pool, number: int = 0) -> Node:
    return Node(f"n{number}", "me", "job", where, "k", NodeState.RUNNING, NOW, 2.0)


def test_a_living_gang_pays_no_start() -> None:
    here, there = offer(pool("a"), 2.0, available=0), offer(pool("b"), 1.995)
    training = Progress(state=GangState.TRAINING)
    made = plan(request([here, there], job(10), progress=training, nodes=(node_in(here.pool),)))
    (allocation,) = made.allocations
    assert allocation.pool == here.pool
    assert made.objective_usd == pytest.approx(2.0 * 10 * 1810 / 1800, rel=1e-4)


def test_a_living_gang_is_left_for_a_much_cheaper_pool() -> None:
    here, there = offer(pool("a"), 2.0), offer(pool("b"), 1.0)
    training = Progress(state=GangState.TRAINING)
    made = plan(request([here, there], job(10), progress=training, nodes=(node_in(here.pool),)))
    assert {a.pool for a in made.allocations} == {there.pool}


def test_phases_keep_their_order_and_gang_sizes() -> None:
    phases = (Phase("warm", 0.25, 1, 1), Phase("scale", 0.75, 2, 4))
    what = replace(job(20, deadline_h=40, resources=Resources(max_nodes=4)), phases=phases)
    made = plan(request([offer(pool(), 2.0)], what))
    assert [a.nodes for a in made.allocations] == [1, 2]
    assert made.allocations[0].end_at <= made.allocations[1].start_at


def test_the_zone_share_spreads_the_gang() -> None:
    offers = [offer(pool("a"), 1.0), offer(pool("b"), 2.0), offer(pool("c"), 3.0)]
    policy = replace(CERTAIN, limits=Limits(max_zone_share=0.5))
    what = job(10, resources=Resources(min_nodes=2, max_nodes=2))
    made = plan(request(offers, what, policy=policy))
    assert {(a.pool.zone, a.nodes) for a in made.allocations} == {("r1a", 1), ("r1b", 1)}


def test_an_hourly_limit_caps_the_gang() -> None:
    policy = replace(CERTAIN, limits=Limits(max_usd_per_hour=4.0))
    what = job(20, deadline_h=14, resources=Resources(max_nodes=4))
    made = plan(request([offer(pool(), 2.0)], what, policy=policy))
    assert made.status is PlanStatus.OPTIMAL
    assert max(a.nodes for a in made.allocations) == 2


def test_carbon_weight_refuses_unknown_carbon() -> None:
    offers = [offer(pool("a"), 1.0), offer(pool("b"), 2.0)]
    powers = {offers[0].pool: power(gco2e_per_kwh=None), offers[1].pool: power()}
    policy = replace(CERTAIN, objective=Objective(usd_per_tonne_co2e=50))
    made = plan(request(offers, policy=policy, powers=powers))
    assert {a.pool for a in made.allocations} == {offers[1].pool}
    assert [(r.pool, r.code) for r in made.rejections] == [(offers[0].pool, "carbon_unknown")]
    indifferent = plan(request(offers, powers=powers))
    assert {a.pool for a in indifferent.allocations} == {offers[0].pool}
    assert indifferent.forecasts[0][1].gco2e is None


def test_an_unknown_spot_hazard_refuses_and_power_where_energy_counts() -> None:
    offers = [
        offer(pool("a"), 1.0, hazard=None),
        offer(pool("b"), 1.0),
        offer(pool("c", kind=ON_DEMAND), 2.0, hazard=None),
    ]
    powers = {o.pool: power() for o in offers if o.pool.zone != "r1b"}
    policy = replace(CERTAIN, objective=Objective(usd_per_kwh=1e-3))
    made = plan(request(offers, policy=policy, powers=powers))
    assert {r.code for r in made.rejections} == {"hazard_unknown", "power_unknown"}
    assert {a.pool for a in made.allocations} == {offers[2].pool}


@pytest.mark.parametrize("price", [1e-5, 1e5])
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_extreme_prices_plan_the_same(price: float, solver: str) -> None:
    offers = [offer(pool("a"), price), offer(pool("b"), price * 1.5)]
    made = plan(request(offers, job(10)), solver=solver)
    assert made.status is PlanStatus.OPTIMAL
    assert {a.pool for a in made.allocations} == {offers[0].pool}
    assert made.objective_usd == pytest.approx(price * (10 * 1810 / 1800 + 1 / 30), rel=1e-4)


def test_prices_far_apart_do_not_confuse() -> None:
    offers = [offer(pool("a"), 1e5), offer(pool("b"), 1e-5)]
    made = plan(request(offers, job(10)))
    assert {a.pool for a in made.allocations} == {offers[1].pool}


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0])
def test_impossible_work_is_refused(amount: float) -> None:
    what = job(10)
    broken = replace(what, work=replace(what.work, amount=amount))
    with pytest.raises(InfeasibleError, match="work amount"):
        plan(request([offer(pool(), 2.0)], broken))


def test_an_enormous_hazard_is_refused() -> None:
    made = plan(request([offer(pool(), 2.0, hazard=1e6)]))
    assert made.status is PlanStatus.INFEASIBLE
    assert made.rejections[0].code == "hazard_too_high"


def test_an_infinite_price_or_power_is_refused() -> None:
    bad = replace(
        offer(pool("a"), 1.0),
        price_usd_per_hour=Estimate(math.inf, math.inf, math.inf, Basis.MEASURED, "x", NOW),
    )
    hot, fine = offer(pool("b"), 1.0), offer(pool("c"), 2.0)
    powers = {hot.pool: power(math.nan), fine.pool: power(), bad.pool: power()}
    made = plan(request([bad, hot, fine], powers=powers))
    assert {r.code for r in made.rejections} == {"price_invalid", "power_invalid"}
    assert {a.pool for a in made.allocations} == {fine.pool}


def test_a_deadline_within_minutes() -> None:
    made = plan(request([offer(pool(), 2.0)], job(0.1, deadline_h=0.2)))
    assert made.status is PlanStatus.OPTIMAL
    assert plan(request([offer(pool(), 2.0)], job(0.1, deadline_h=0.1))).status is (
        PlanStatus.INFEASIBLE
    )


def test_candidates_say_why_not() -> None:
    offers = [offer(pool("a"), 2.0), offer(pool("b"), 4.2), offer(pool("c", name="slow"), 0.5)]
    slow = machine("T4", name="slow")
    machines = {o.pool: slow if o.pool.instance_type == "slow" else machine() for o in offers}
    what = job(10, points=[("A100", 8, 1.0), ("T4", 8, 0.1)])
    made = plan(request(offers, what, machines=machines))
    first, second, third = made.candidates
    assert first.chosen
    assert first.rejection is None
    assert second.rejection is not None
    assert second.rejection.reason == "2.1× the cost"
    assert second.rejection.enters_below_usd_per_hour == pytest.approx(2.0, rel=1e-3)
    assert third.rejection is not None
    assert "h late" in third.rejection.reason


def test_the_plan_is_the_same_each_time() -> None:
    offers = [offer(pool(z), 2.0 + i / 10, hazard=0.1) for i, z in enumerate("abcdef")]
    wanted = request(offers, job(20, deadline_h=30, resources=Resources(max_nodes=3)))
    first, second = plan(wanted), plan(wanted)
    assert replace(first, solve_s=0.0, build_s=0.0) == replace(second, solve_s=0.0, build_s=0.0)
