"""Power caps as rows of the table of configurations, and limits on kilowatts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Resources
from costopt.domain.market import Offer, Pool
from costopt.domain.plan import PlanStatus
from costopt.domain.policy import Limits, Objective, Policy
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.limits import shared_limits
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest, Quota
from tests.support.known_figure import known
from tests.support.optimize_fixtures import NOW, job, offer, plan_request, pool, power

BUSY_W = 4000.0
MILD = PowerCap(300.0, 0.95, 3200.0, "made up")
HARD = PowerCap(200.0, 0.8, 2600.0, "made up")
USELESS = PowerCap(100.0, 0.4, 2000.0, "made up")
CAPPED = replace(power(BUSY_W), caps=(MILD, HARD, USELESS))
ALLOWED = Limits(power_caps=True)


def table(
    offers: list[Offer],
    limits: Limits = ALLOWED,
    powers: Mapping[Pool, NodePower] | None = None,
    nodes: int = 3,
    quotas: tuple[Quota, ...] = (),
) -> ConfigurationTable:
    asked = request(offers, limits, powers, nodes, quotas)
    demand = remaining_demand(asked.jobs[0], NOW, 0.0)
    assert demand is not None
    return TableEnumerator(asked).table(demand)[0]


def request(
    offers: list[Offer],
    limits: Limits = ALLOWED,
    powers: Mapping[Pool, NodePower] | None = None,
    nodes: int = 3,
    quotas: tuple[Quota, ...] = (),
) -> PlanRequest:
    what = job(resources=Resources(max_nodes=nodes))
    capped = powers or {o.pool: CAPPED for o in offers}
    policy = Policy("p", limits=limits)
    return plan_request(offers, what, policy=policy, powers=capped, quotas=quotas)


def two_pools() -> list[Offer]:
    return [offer(pool("a"), 10.0, hazard=0.1), offer(pool("b"), 11.0, hazard=0.0)]


def test_each_gang_comes_again_under_each_cap_that_saves_energy() -> None:
    found = table(two_pools())
    free = np.isnan(found.cap_w)
    assert found.gang[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert free.tolist() == [True] * 6 + [False] * 12
    assert sorted(set(found.cap_w[~free].tolist())) == [200.0, 300.0]
    for row in np.flatnonzero(~free).tolist():
        bare = int(np.flatnonzero(free & (found.gang == found.gang[row]))[0])
        cap = MILD if found.cap_w[row] == 300 else HARD
        assert found.parts(row) == found.parts(bare)
        assert found.speed[row] == pytest.approx(found.speed[bare] * cap.speed)
        assert found.speed_low[row] == pytest.approx(found.speed_low[bare] * cap.speed)
        assert found.busy_kw[row] == pytest.approx(found.busy_kw[bare] * cap.busy_w / BUSY_W)
        for same in ("usd_per_hour", "hazard", "idle_kw", "kwh_per_start", "interval_s"):
            assert getattr(found, same)[row] == getattr(found, same)[bare]


def test_no_cap_without_leave() -> None:
    assert np.isnan(table(two_pools(), Limits()).cap_w).all()
    assert len(table(two_pools(), Limits())) == 6


def test_pools_without_measured_caps_have_none() -> None:
    offers = two_pools()
    powers = {offers[0].pool: power(BUSY_W), offers[1].pool: CAPPED}
    found = table(offers, powers=powers)
    assert set(found.offer[~np.isnan(found.cap_w)].tolist()) == {1}


@pytest.mark.parametrize(
    "bad",
    [
        PowerCap(300.0, 0.0, 3200.0, "stands still"),
        PowerCap(300.0, float("nan"), 3200.0, "unknown"),
        PowerCap(300.0, 1.2, 3200.0, "faster"),
        PowerCap(300.0, 0.9, float("inf"), "unknown"),
        PowerCap(0.0, 0.9, 3200.0, "none"),
    ],
)
def test_a_cap_with_impossible_figures_is_not_a_row(bad: PowerCap) -> None:
    offers = two_pools()
    powers = dict.fromkeys((o.pool for o in offers), replace(CAPPED, caps=(bad, MILD)))
    found = table(offers, powers=powers)
    assert set(found.cap_w[~np.isnan(found.cap_w)].tolist()) == {300.0}


def test_a_cap_that_pays_only_without_restarts_is_left_out() -> None:
    """Restarts draw the same, so the share of energy that a cap can save shrinks with them."""
    narrow = PowerCap(300.0, 0.5, 1999.0, "made up")
    offers = [offer(pool("a"), 10.0, hazard=0.0), offer(pool("b"), 10.0, hazard=0.5)]
    powers = dict.fromkeys((o.pool for o in offers), replace(power(BUSY_W), caps=(narrow,)))
    found = table(offers, powers=powers)
    assert set(found.offer[~np.isnan(found.cap_w)].tolist()) == {0}


def test_spreads_are_capped_whole() -> None:
    found = table(two_pools(), Limits(power_caps=True, max_zone_share=0.5), nodes=2)
    spread = [row for row in range(len(found)) if found.spread[row]]
    assert [found.cap_w[row] for row in spread[1:]] == [300.0, 200.0]
    assert len({int(found.gang[row]) for row in spread}) == 1
    assert found.busy_kw[spread[1]] == pytest.approx(2 * 3.2 * 1.2)


def gangs(found: ConfigurationTable) -> set[tuple[int, int, float]]:
    """(offer, nodes, cap or 0) of each row."""
    caps = np.nan_to_num(found.cap_w)
    return set(zip(found.offer.tolist(), found.nodes.tolist(), caps.tolist(), strict=True))


NODE_KW = BUSY_W * 1.2 / 1000
MILD_KW = MILD.busy_w * 1.2 / 1000


def test_a_gang_over_the_policys_kilowatts_fits_under_a_cap() -> None:
    """Two nodes fit only under a cap, though the rows without one are gone."""
    found = table(two_pools(), Limits(power_caps=True, max_kw=2 * MILD_KW))
    assert {(n, cap) for _, n, cap in gangs(found)} == {
        (1, 0.0), (1, 300.0), (1, 200.0), (2, 300.0), (2, 200.0),
    }  # fmt: skip


def test_a_quota_of_kilowatts_holds_where_it_matches() -> None:
    offers = [offer(pool("a"), 10.0), offer(pool("a", region="r2"), 10.0)]
    site = Quota("site", region="r1", max_kw=1.5 * NODE_KW)
    found = table(offers, Limits(), quotas=(site,))
    assert gangs(found) == {(0, 1, 0.0), (1, 1, 0.0), (1, 2, 0.0), (1, 3, 0.0)}


def test_jobs_share_the_kilowatts_of_the_policy_and_of_a_site() -> None:
    offers = [offer(pool("a"), 10.0), offer(pool("a", region="r2"), 10.0)]
    site = Quota("site", region="r1", max_kw=7.0)
    limits = Limits(power_caps=True, max_kw=20.0)
    asked = request(offers, limits, quotas=(site,))
    found = table(offers, limits, quotas=(site,))
    demand = remaining_demand(asked.jobs[0], NOW, 0.0)
    assert demand is not None
    everywhere, at_site = (limit for limit in shared_limits(asked) if limit.resource.key == "kw")
    assert (everywhere.name, everywhere.most) == ("max_kw", 20.0)
    assert (at_site.name, at_site.most) == ("quota site", 7.0)
    loads = {
        (int(found.offer[row]), int(found.nodes[row]), float(np.nan_to_num(found.cap_w[row]))): (
            everywhere.load(asked, demand, found, row),
            at_site.load(asked, demand, found, row),
        )
        for row in range(len(found))
    }
    assert loads[0, 1, 0.0] == pytest.approx((NODE_KW, NODE_KW))
    assert loads[0, 1, 300.0] == pytest.approx((MILD_KW, MILD_KW))
    assert loads[1, 2, 300.0] == pytest.approx((2 * MILD_KW, 0.0))


def test_what_no_gang_can_draw_is_named_as_what_binds() -> None:
    found = plan(request(two_pools(), Limits(max_kw=1.0)))
    assert found.status is PlanStatus.INFEASIBLE
    assert found.binding == "limit: the policy's max_kw of 1"
    assert {r.reason for r in found.rejections} == {"the smallest gang draws more than 1 kW"}


def test_jobs_together_stay_within_the_kilowatts() -> None:
    """Each alone would fit at once; together they must take turns or caps."""
    asked = request([offer(pool("a"), 10.0)], Limits(max_kw=1.5 * NODE_KW), nodes=1)
    two = tuple(
        replace(asked.jobs[0], job=job(8, name=name, deadline_h=24)) for name in ("one", "two")
    )
    found = plan(replace(asked, jobs=two))
    assert found.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE)
    spans = sorted((a.start_at, a.end_at) for a in found.allocations)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_what_a_capped_gang_was_measured_to_do_is_not_slowed_twice() -> None:
    where = pool("a")
    asked = request([offer(where, 10.0)], nodes=1)
    node = Node("n", "me", "job", where, "k", NodeState.RUNNING, NOW, 10.0)
    running = JobView(
        asked.jobs[0].job, Progress(measured_units_per_s=0.76), (node,), capped_speed=0.95
    )
    demand = remaining_demand(running, NOW, 0.0)
    assert demand is not None
    found, _ = TableEnumerator(asked).table(demand)
    speeds = dict(zip(np.nan_to_num(found.cap_w).tolist(), found.speed.tolist(), strict=True))
    assert speeds == pytest.approx({0.0: 0.8, 300.0: 0.76, 200.0: 0.64})


def test_time_that_is_left_goes_to_the_cap_that_saves_energy() -> None:
    """Where there is time for the cap during a part of the work, each hour of it saves alike."""
    only = offer(pool("a"), 1.0, hazard=0.0)

    def usd(deadline_h: float) -> float:
        asked = request([only], nodes=1, powers={only.pool: replace(CAPPED, caps=(HARD,))})
        view = replace(asked.jobs[0], job=job(10.0, deadline_h=deadline_h))
        policy = replace(asked.policy, objective=Objective(usd=0.01, usd_per_kwh=1.0))
        made = plan(replace(asked, jobs=(view,), policy=policy), explain=False)
        assert made.bound_usd == pytest.approx(made.objective_usd, rel=1e-5)
        return known(made.objective_usd)

    tight, loose = usd(11.0), usd(12.2)
    assert loose < tight * 0.95
    for share in (0.25, 0.5, 0.75):
        between = usd(11.0 + 1.2 * share)
        assert between == pytest.approx(tight + (loose - tight) * share, rel=1e-5)
