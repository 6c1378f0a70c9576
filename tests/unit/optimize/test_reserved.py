"""Reserved capacity: paid for anyhow, believed for good, and bound to its dates."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import CapacityType, Offer
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Policy
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.demand import remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.limits import room_nodes, shared_limits
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import NOW, configuration_table, job, offer, plan_request, pool

RESERVED = pool("a", kind=CapacityType.RESERVED)
SPOT = pool("b")


def reserved(
    available: int | None = None, *, from_h: float = -24.0, until_h: float = 720.0
) -> Offer:
    return replace(
        offer(RESERVED, 0.0, hazard=None, available=available),
        from_at=NOW + timedelta(hours=from_h),
        until_at=NOW + timedelta(hours=until_h),
    )


def request_of(
    *offers: Offer, jobs: tuple[JobView, ...] = (), limits: Limits | None = None
) -> PlanRequest:
    return plan_request(offers, *jobs, policy=Policy("cheap", limits=limits or Limits()))


def test_a_reservation_comes_first_because_it_is_free() -> None:
    made = plan(request_of(reserved(4), offer(SPOT, 0.01)))
    assert made.status is PlanStatus.OPTIMAL
    assert {a.pool for a in made.allocations} == {RESERVED}
    assert made.objective_usd == 0


def test_what_is_more_expensive_than_nothing_says_so() -> None:
    made = plan(request_of(reserved(4), offer(SPOT, 1.0)))
    reasons = {c.pool: c.rejection.reason for c in made.candidates if c.rejection is not None}
    assert "the chosen nothing" in reasons[SPOT]


def test_a_policy_may_leave_reservations_out() -> None:
    limits = Limits(capacity_types=(CapacityType.SPOT,))
    made = plan(request_of(reserved(4), offer(SPOT, 1.0), limits=limits))
    assert {a.pool for a in made.allocations} == {SPOT}


@pytest.mark.parametrize("kind", [CapacityType.SPOT, CapacityType.ON_DEMAND])
def test_nothing_else_may_cost_nothing(kind: CapacityType) -> None:
    made = plan(request_of(offer(pool("a", kind=kind), 0.0)))
    assert [r.code for r in made.rejections] == ["price_invalid"]


@pytest.mark.parametrize("kind", [CapacityType.SPOT, CapacityType.ON_DEMAND])
def test_what_the_account_calls_free_is_used(kind: CapacityType) -> None:
    free = replace(offer(pool("a", kind=kind), 0.0), is_free=True)
    made = plan(request_of(free, offer(SPOT, 1.0)))
    assert {a.pool for a in made.allocations} == {free.pool}


def test_its_availability_is_steady_and_its_dates_are_reported_in_hours() -> None:
    table = configuration_table(request_of(reserved(4, from_h=2.0, until_h=30.0), offer(SPOT, 1.0)))
    order = [table.parts(row)[0][0] for row in range(len(table))]
    here, spot = order.index(RESERVED), order.index(SPOT)
    assert table.steady[[here, spot]].tolist() == [True, False]
    assert table.from_h[[here, spot]] == pytest.approx([2.0, -math.inf])
    assert table.until_h[[here, spot]] == pytest.approx([30.0, math.inf])


def test_a_reservation_that_is_over_is_out() -> None:
    made = plan(request_of(reserved(4, until_h=-1.0), offer(SPOT, 1.0)))
    assert [(r.pool, r.code) for r in made.rejections] == [(RESERVED, "dated")]


def test_a_reservation_after_the_deadline_is_out() -> None:
    made = plan(request_of(reserved(4, from_h=24.0), offer(SPOT, 1.0)))
    assert [(r.pool, r.code) for r in made.rejections] == [(RESERVED, "dated")]


def test_a_reservation_smaller_than_every_gang_is_out() -> None:
    made = plan(request_of(reserved(0), offer(SPOT, 1.0)))
    assert [(r.pool, r.code) for r in made.rejections] == [(RESERVED, "capacity")]


def test_nodes_that_other_jobs_hold_come_free_again() -> None:
    held = Node("n", "me", "other", RESERVED, "k", NodeState.RUNNING, NOW, 0.0)
    jobs = (
        JobView(job(), Progress()),
        JobView(job(name="other"), Progress(), (held,)),
    )
    request = request_of(reserved(0), offer(SPOT, 1.0), jobs=jobs)
    (limit,) = [one for one in shared_limits(request) if one.pool == RESERVED]
    assert (limit.most, limit.near) == (1, False)
    for view in jobs:
        demand = remaining_demand(view, NOW, 0.0)
        assert demand is not None
        assert room_nodes(request.offers[0], request, demand) == 1
        table, _ = TableEnumerator(request).table(demand)
        loads = {
            table.parts(row)[0][0]: limit.load(request, demand, table, row)
            for row in range(len(table))
        }
        assert loads == {RESERVED: 1.0, SPOT: 0.0}
