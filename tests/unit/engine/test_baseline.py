"""The baseline is the job on the cheapest on-demand gang that is in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import JobSubmitted
from costopt.domain.history import PoolHistory
from costopt.domain.job import Phase
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits
from costopt.domain.view import JobView, View
from costopt.strategies.gang_options import GangOption, gang_options
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    Scene,
    always,
    rules,
    task,
)


def _submitted(scene: Scene) -> JobSubmitted:
    scene.tick()
    (submitted,) = scene.events(JobSubmitted)
    return submitted


def test_the_baseline_s_figures() -> None:
    """4 h of work, 7 saves before the last, at 8 $/h; 100 s of start-up at 0.5 kW."""
    job = _submitted(Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=[task()]))
    busy_s = 4 * HOUR_S * (1 + 10 / 1800) + 10
    assert job.baseline_pool == str(SAFE)
    assert job.baseline_usd_micros == round(8.0 * (100 + busy_s) / 3600 * 1e6)
    assert job.baseline_wh == pytest.approx((0.5 * 100 + busy_s) / 3.6)
    assert job.baseline_wh is not None
    assert job.baseline_gco2e == pytest.approx(400 * job.baseline_wh / 1000)


def test_spot_is_not_weighed_for_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[CapacityType] = []

    def note(view: View, job_view: JobView) -> tuple[GangOption, ...]:
        weighed.extend(offer.pool.capacity_type for offer in view.offers)
        return gang_options(view, job_view)

    monkeypatch.setattr("costopt.engine.view_builder.gang_options", note)
    submitted = _submitted(Scene(always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0), jobs=[task()]))
    assert submitted.baseline_pool == str(SAFE)
    assert set(weighed) == {CapacityType.ON_DEMAND}


def test_a_more_expensive_gang_where_the_cheapest_is_too_slow() -> None:
    scene = Scene(
        always(SAFE, 9, 8.0), always(BIG_SAFE, 9, 36.0), jobs=[task(deadline_s=3 * HOUR_S)]
    )
    assert _submitted(scene).baseline_pool == str(BIG_SAFE)


def test_phases_are_priced_at_the_nodes_they_take() -> None:
    phases = (Phase("wide", 0.5, 4, 4), Phase("narrow", 0.5, 1, 1))
    job = replace(task(save_s=0, nodes=(1, 4)), phases=phases)
    submitted = _submitted(Scene(always(SAFE, 9, 8.0), jobs=[job]))
    assert submitted.baseline_usd_micros is not None
    node_hours = 2.0 + 2.0
    usd = submitted.baseline_usd_micros / 1e6
    assert 8.0 * node_hours < usd < 8.0 * (node_hours + 4 * 400 / 3600)


@pytest.mark.parametrize(
    ("histories", "price", "pool"),
    [
        ([always(SPOT_A, 1, 2.0)], None, None),
        ([always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0)], None, str(SAFE)),
        ([always(SPOT_A, 1, 2.0), always(SAFE, 9, 8.0)], 0.0, None),
    ],
    ids=["no on-demand", "a policy without on-demand", "an impossible price"],
)
def test_the_baseline_needs_on_demand_and_a_price_and_no_permission(
    histories: list[PoolHistory], price: float | None, pool: str | None
) -> None:
    limits = Limits(capacity_types=(CapacityType.SPOT,))
    scene = Scene(*histories, jobs=[task()], policy=rules("greedy_spot", limits=limits))
    if price is not None:
        scene.cloud.quoted_prices = {SAFE: Estimate.exact(price, Basis.MEASURED, "broken")}
    submitted = _submitted(scene)
    assert submitted.baseline_pool == pool
    assert (submitted.baseline_usd_micros is None) is (pool is None)
    assert (submitted.baseline_wh is None) is (pool is None)
