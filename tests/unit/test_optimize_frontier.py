"""What-if: scenarios over policies, deadlines and markets, and the frontier of dollars and kWh."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from costopt.domain.errors import InfeasibleError
from costopt.domain.job import Job, Progress, Resources
from costopt.domain.market import CapacityType
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Objective, Policy
from costopt.domain.view import JobView
from costopt.optimize.frontier import frontier, scenarios
from costopt.optimize.request import PlanRequest
from tests.optimize_fixtures import NOW, job, machines_of, offer, pool, power

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def request(what: Job, *, trade_off: bool = True) -> PlanRequest:
    """Pools from cheap and hungry to dear and frugal, with an on-demand one."""
    hazard = 0.02 if trade_off else 0.0
    offers = [
        offer(pool("a"), 2.0, hazard=hazard),
        offer(pool("b"), 2.6, hazard=hazard),
        offer(pool("c"), 4.0, hazard=hazard),
        offer(pool("d", kind=ON_DEMAND), 8.0),
    ]
    watts = (6000.0, 4000.0, 3000.0, 5000.0) if trade_off else (4000.0,) * 4
    powers = {o.pool: power(w) for o, w in zip(offers, watts, strict=True)}
    return PlanRequest(
        NOW, (JobView(what, Progress()),), tuple(offers), machines_of(offers), powers, Policy("p")
    )


def test_the_frontier_trades_dollars_for_energy() -> None:
    found = frontier(request(job(40, deadline_h=60)))
    assert len(found) >= 9
    for cheaper, dearer in pairwise(found):
        assert cheaper.usd < dearer.usd
        assert cheaper.kwh > dearer.kwh
    assert {a.pool.zone for a in found[0].allocations} == {"r1a"}
    assert {a.pool.zone for a in found[-1].allocations} == {"r1c"}


def test_without_a_trade_off_the_frontier_is_a_point() -> None:
    assert len(frontier(request(job(40, deadline_h=60), trade_off=False))) == 1


def test_without_a_plan_there_is_no_frontier() -> None:
    assert frontier(request(job(40, deadline_h=20))) == ()


def test_scenarios_cross_every_axis() -> None:
    what = job(20, deadline_h=60, resources=Resources(max_nodes=2))
    policies = (Policy("cheap"), Policy("green", objective=Objective(usd_per_kwh=5.0)))
    deadlines = tuple(NOW + timedelta(hours=h) for h in (5, 16, 60))
    found = scenarios(
        request(what),
        policies=policies,
        deadlines=deadlines,
        capacity_types=((SPOT,), (ON_DEMAND,), (SPOT, ON_DEMAND)),
    )
    assert len(found) == 2 * 3 * 3
    by_key = {(s.policy, s.deadline_at, s.capacity_types): s for s in found}
    late = by_key["cheap", deadlines[0], (SPOT,)]
    assert late.plan.status is PlanStatus.INFEASIBLE
    assert late.forecast is None
    spot = by_key["cheap", deadlines[2], (SPOT,)].forecast
    on_demand = by_key["cheap", deadlines[2], (ON_DEMAND,)].forecast
    green = by_key["green", deadlines[2], (SPOT,)].forecast
    assert spot is not None
    assert on_demand is not None
    assert green is not None
    assert spot.usd_p50 < on_demand.usd_p50
    assert green.kwh < spot.kwh


def test_a_what_if_takes_one_job() -> None:
    wanted = request(job())
    two = PlanRequest(
        NOW, wanted.jobs * 2, wanted.offers, wanted.machines, wanted.powers, wanted.policy
    )
    with pytest.raises(InfeasibleError, match="one job"):
        frontier(two)
