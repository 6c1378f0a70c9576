"""Phases follow one another, pause only where they may, and take no longer than the limit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from costopt.domain.errors import SolverError
from costopt.domain.estimate import Series
from costopt.domain.job import Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Offer
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Objective, Policy, Risk
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.model import PlanModel
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.planner import plan, prepare
from costopt.optimize.pruning import stage_configurations
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment, schedule_uses, verify
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.solve import SolverSettings
from tests.support.optimize_fixtures import NOW, UNHURRIED_S, job, offer, plan_request, pool

HEADLINE = (
    Phase("early", 0.4, 2, 4),
    Phase("middle", 0.4, 1, 2),
    Phase("last", 0.2, 1, 1, may_pause=False),
)
"""Early on many nodes, then on fewer, then on one that may not pause."""


def phased(*phases: Phase, work_h: float = 20.0, deadline_h: float = 24.0) -> Job:
    one = job(work_h, deadline_h=deadline_h, resources=Resources(max_nodes=4))
    return replace(one, phases=phases)


def request(
    what: Job, offers: Sequence[Offer], *, policy: Policy | None = None, moving: bool = False
) -> PlanRequest:
    at = (NOW, NOW + timedelta(hours=5))
    series = {
        o.pool: Series(at, (p, p * 1.3), "made up")
        for o in offers
        if o.price_usd_per_hour and (p := o.price_usd_per_hour.value)
    }
    chosen = policy or Policy("p", risk=Risk(0.9, 0.0))
    return plan_request(offers, what, policy=chosen, price_forecasts=series if moving else {})


def market() -> list[Offer]:
    spot = [offer(pool(zone), usd, hazard=0.01) for zone, usd in (("a", 1.0), ("b", 1.1))]
    return [*spot, offer(pool("z", kind=CapacityType.ON_DEMAND), 5.0)]


def solved_over_slots(wanted: PlanRequest) -> tuple[PlannedJob, tuple[Segment, ...]]:
    """The job by the mixed-integer program of whole slots, as its plan is polished."""
    (bare,), _ = prepare(wanted)
    part = replace(bare, options=stage_configurations(bare.table, bare.demand))
    slots = planning_slots(wanted, [part.demand])
    model = PlanModel(wanted, [part], slots, exclusive=True)
    solution = model.solve(time_limit_s=UNHURRIED_S, gap=0.0)
    (uses,) = model.uses(solution)
    slot_costs = SlotCosts.of(ForecastTable.of(wanted, slots), part.table, wanted.policy.objective)
    return part, schedule_uses(part, slot_costs, uses, slots, exclusive=True)


@pytest.mark.slow
@pytest.mark.parametrize("usd", [1.0, 0.0, -1.0])
def test_no_phase_goes_on_once_a_later_one_has_begun(usd: float) -> None:
    """However little surplus work costs: a weight of −1 pays for as much of it as fits."""
    what = phased(*HEADLINE, work_h=4.0, deadline_h=9.0)
    policy = Policy("p", Objective(usd=usd), Risk(0.9, 0.0))
    part, segments = solved_over_slots(request(what, [offer(pool("a"), 1.0)], policy=policy))
    assert segments
    verify(part, segments)


def test_a_phase_that_may_not_pause_is_planned_as_one_that_may_where_nothing_changes() -> None:
    pausing = tuple(replace(phase, may_pause=True) for phase in HEADLINE)
    made = plan(request(phased(*HEADLINE), market()))
    free = plan(request(phased(*pausing), market()))
    assert made.status is PlanStatus.OPTIMAL
    assert made.objective_usd == pytest.approx(free.objective_usd)


def test_a_phase_that_may_not_pause_runs_through_where_its_pool_is_seen_to_end() -> None:
    """The cheap pool is there for the next hour alone, by which the phase is not over."""
    offers = [
        offer(pool("a"), 1.0, available=4),
        offer(pool("z", kind=CapacityType.ON_DEMAND), 5.0),
    ]
    made = plan(request(phased(Phase("only", 1.0, 1, 1, may_pause=False)), offers))
    assert made.allocations
    for before, after in pairwise(made.allocations):
        assert after.start_at - before.end_at < timedelta(seconds=5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_phases_are_planned_over_slots_with_a_margin_for_the_worst(seed: int) -> None:
    """A change of gangs where the one before ends early as expected is not a pause."""
    rng = np.random.default_rng(seed)
    what = phased(*HEADLINE, work_h=8.0, deadline_h=float(rng.uniform(8, 14)))
    offers = [offer(pool(z), 1.0, hazard=0.05, hazard_high=0.3) for z in "ab"]
    wanted = request(what, [*offers, offer(pool("z", kind=CapacityType.ON_DEMAND), 5.0)])
    at = tuple(NOW + timedelta(hours=hours) for hours in range(14))
    series = {
        o.pool: Series(at, tuple(rng.uniform(0.5, 2.0, len(at)).tolist()), "made up")
        for o in offers
    }
    made = plan(replace(wanted, price_forecasts=series), time_limit_s=2.0, explain=False)
    assert made.allocations


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.slow
def test_three_phases_follow_one_another(moving: bool) -> None:
    made = plan(request(phased(*HEADLINE), market(), moving=moving), explain=False)
    assert made.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE)
    assert made.allocations[-1].nodes == 1


def test_a_plan_that_pauses_in_a_phase_that_may_not_is_refused() -> None:
    wanted = request(phased(Phase("only", 1.0, 1, 1, may_pause=False)), [offer(pool("a"), 1.0)])
    (part,), _ = prepare(wanted)
    units_per_hour = part.table.paid_units_per_hour[0]
    hours = part.demand.units / units_per_hour / 2

    def half(begin_h: float) -> Segment:
        return Segment(0, 0, begin_h, begin_h + hours, hours, 0.0, 0.0, 1.0, 1.0, 1.0, 300.0)

    verify(part, [half(0.0), half(hours)])
    with pytest.raises(SolverError):
        verify(part, [half(0.0), half(hours + 0.5)])


def test_phases_that_no_offer_can_run_are_reported_without_a_warning() -> None:
    """The first phase's gangs of two and more would stand in one zone, which the policy forbids."""
    policy = Policy("p", risk=Risk(0.9, 0.0), limits=Limits(max_zone_share=0.75))
    what = replace(
        phased(*HEADLINE),
        work=WorkAmount(8e9, WorkUnit.TOKENS),
        throughput=Throughput((ThroughputSample("A100", 8, 1e5),)),
    )
    wanted = request(what, market()[:1], policy=policy, moving=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = plan(wanted, explain=False)
    assert made.status is PlanStatus.INFEASIBLE


def test_what_one_plan_takes_is_not_there_for_the_next() -> None:
    settings = SolverSettings(10.0, 0.005, began_s=time.perf_counter() - 9.0)
    half = settings.within(0.5)
    assert half.time_limit_s <= 0.5
    assert half.left_s() <= half.time_limit_s
    assert SolverSettings(10.0, 0.005, began_s=time.perf_counter() - 11.0).left_s() == 0
