"""Power caps as rows of the table of configurations, and limits on kilowatts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from costopt.domain.job import Progress, Resources
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Limits, Policy
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.view import JobView
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import demand_of
from costopt.optimize.enumerate import enumerate_configurations
from costopt.optimize.request import PlanRequest
from tests.optimize_fixtures import NOW, job, machines_of, offer, pool, power

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
) -> ConfigurationTable:
    request = PlanRequest(
        now=NOW,
        jobs=(JobView(job(resources=Resources(max_nodes=nodes)), Progress()),),
        offers=tuple(offers),
        machines=machines_of(offers),
        powers=powers or {o.pool: CAPPED for o in offers},
        policy=Policy("p", limits=limits),
    )
    demand = demand_of(request.jobs[0], NOW, 0.0)
    assert demand is not None
    return enumerate_configurations(request, demand)[0]


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
def test_a_cap_with_impossible_figures_is_no_row(bad: PowerCap) -> None:
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
