"""Waits for capacity: of any pool at about the price, and of as many zones as a spread needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Resources
from costopt.domain.market import CapacityType, Offer
from costopt.domain.notices import NoticePeriod, no_notice, notice_period
from costopt.domain.policy import Limits, Policy
from costopt.domain.progress import Progress
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import NOW, configuration_table, job, offer, plan_request, pool

ON_DEMAND = CapacityType.ON_DEMAND
SHARES = (0.5, 0.8, 0.6)


def up(one: Offer, share: float) -> Offer:
    return replace(one, availability=Estimate.exact(share, Basis.MEASURED, "made up", NOW))


def request_of(
    offers: list[Offer],
    *,
    nodes: int = 1,
    zone_share: float | None = None,
    notice_s: NoticePeriod = no_notice,
    deadline_h: float = 30.0,
) -> PlanRequest:
    gang = Resources(min_nodes=nodes, max_nodes=nodes)
    what = job(20, deadline_h=deadline_h, resources=gang, save_s=60)
    policy = Policy("p", limits=Limits(max_zone_share=zone_share))
    return plan_request(offers, what, policy=policy, notice_s=notice_s)


def test_a_job_waits_where_no_pool_at_about_the_price_has_capacity() -> None:
    cheap = [up(offer(pool(z), 2.0), share) for z, share in zip("abc", SHARES, strict=True)]
    far = [up(offer(pool("d"), 9.0), 0.9), offer(pool("e", kind=ON_DEMAND), 9.0)]
    table = configuration_table(request_of([*cheap, *far]))
    any_of_three = 1 - 0.5 * 0.2 * 0.4
    expected = [1 / any_of_three] * 3 + [1 / (1 - (1 - any_of_three) * 0.1), 1.0]
    assert table.calendar.tolist() == pytest.approx(expected)
    assert table.availability.tolist() == [*SHARES, 0.9, 1.0]
    alone = configuration_table(request_of([cheap[0], *far]))
    assert alone.calendar[0] == pytest.approx(2.0)


def test_a_spread_waits_for_as_many_zones_of_one_region() -> None:
    here = [up(offer(pool(z), 2.0), 0.5) for z in "abc"]
    there = [up(offer(pool(z, region="r2"), 2.0), 0.5) for z in "ab"]
    table = configuration_table(request_of([*here, *there], nodes=2, zone_share=0.5))
    two_of_three, both = 0.5, 0.25
    expected = 1 / (1 - (1 - two_of_three) * (1 - both))
    assert len(table) == 2
    assert table.calendar.tolist() == pytest.approx([expected] * 2)


def test_pools_that_are_up_by_turns_need_no_on_demand_hours() -> None:
    """Each of six is away for a fifth of the time, as in the shipped market."""
    spot = [up(offer(pool(z), 2.0), 0.8) for z in "abcdef"]
    safe = offer(pool("g", kind=ON_DEMAND), 6.0)
    made = plan(request_of([*spot, safe], deadline_h=25.0), explain=False)
    assert {a.pool.capacity_type for a in made.allocations} == {CapacityType.SPOT}
    assert sum(a.node_hours for a in made.allocations) == pytest.approx(20.7, rel=0.02)


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_gang_of_one_pool_is_lost_as_often_as_the_pool(nodes: int) -> None:
    zones = [offer(pool(z), 2.0, hazard=h, hazard_high=2 * h) for z, h in (("a", 0.2), ("b", 0.4))]
    table = configuration_table(request_of(zones, nodes=nodes))
    assert table.hazard.tolist() == [0.2, 0.4]
    if nodes > 1:
        spread = configuration_table(request_of(zones, nodes=nodes, zone_share=0.5))
        assert spread.hazard.tolist() == pytest.approx([0.6])
        assert spread.hazard_high.tolist() == pytest.approx([1.2])


def test_a_notice_longer_than_a_save_costs_the_save_and_no_work() -> None:
    shaky = [offer(pool("a"), 2.0, hazard=0.5)]
    noticed, short = (
        configuration_table(request_of(shaky, notice_s=notice_period(s))) for s in (61.0, 60.0)
    )
    assert noticed.lossless.tolist() == [True]
    assert short.lossless.tolist() == [False]
    assert noticed.interval_s.tolist() == [1800.0]
    assert short.interval_s.tolist() == pytest.approx([np.sqrt(2 * 7200 * 60)])
    assert noticed.risky_interval_s.tolist() == short.interval_s.tolist()
    restart_h = float(noticed.restart_s[0]) / 3600
    assert restart_h == pytest.approx((180 + 60) / 3600)
    useful = 3600 * 1800 / 1860 / np.exp(0.5 * restart_h)
    assert noticed.paid_units_per_hour[0] == pytest.approx(useful)
    assert noticed.paid_units_per_hour[0] > short.paid_units_per_hour[0]


def test_the_first_start_loads_no_checkpoint_and_later_ones_do() -> None:
    request = request_of([offer(pool("a"), 2.0), offer(pool("b", kind=ON_DEMAND), 6.0)])
    (view,) = request.jobs
    begun = replace(request, jobs=(replace(view, progress=Progress(saved_units=1.0)),))
    first, later = configuration_table(request), configuration_table(begun)
    assert first.start_h == pytest.approx(120 / 3600)
    assert later.start_h == pytest.approx(180 / 3600)
    assert (first.start_h + first.restore_h).tolist() == pytest.approx(later.start_h.tolist())
    assert not later.restore_h.any()
    assert later.usd_per_start - first.usd_per_start == pytest.approx(np.array([2, 6]) / 60)
    assert first.restart_s.tolist() == pytest.approx(later.restart_s.tolist())
