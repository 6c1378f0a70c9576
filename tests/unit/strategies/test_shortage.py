"""Where a pool has fewer nodes than the gang needs, on spot or on demand."""

from __future__ import annotations

import pytest

from costopt.domain.fleet import Node
from costopt.domain.market import Offer
from costopt.domain.view import Decision, Target
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Scene,
    always,
    changing,
    rules,
    task,
)
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

SAFE_B = SPOT_B.with_capacity_type(SAFE.capacity_type)


def _decide(
    offers: list[Offer], *, nodes: int, deadline_h: float = 4.5, on: tuple[Node, ...] = ()
) -> Decision:
    """4 h of work for one node, so 4 / n on a gang of n that the job asks for."""
    job = task(nodes * 4 * HOUR_S, deadline_s=deadline_h * HOUR_S, nodes=(nodes, nodes))
    return only(AdaptiveStrategy().decide(build_view(job, offers, nodes=on, done=0.0)))


def test_on_demand_is_taken_elsewhere_where_the_first_pool_has_none() -> None:
    offers = [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0, 1), offer(SAFE_B, 8.1, 2)]
    assert _decide(offers, nodes=2).targets == (Target(SAFE_B, 2),)


def test_a_run_goes_to_the_pool_on_demand_that_has_room_and_is_in_time() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 2, 2.0), (2 * HOUR_S, 0, 2.0)),
        always(SAFE, 1, 8.0),
        always(SAFE_B, 2, 8.1),
        jobs=[task(8 * HOUR_S, deadline_s=5.5 * HOUR_S, nodes=(2, 2))],
        policy=rules("adaptive"),
        tick_s=300.0,
    )
    scene.go(2.5 * HOUR_S)
    assert set(scene.pools()) == {SAFE_B}
    scene.finish()
    assert scene.summary().on_time is True


@pytest.mark.parametrize("price_usd_per_hour", [7.99, 8.0])
def test_on_demand_that_runs_is_not_left_for_a_cent(price_usd_per_hour: float) -> None:
    offers = [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0), offer(SAFE_B, price_usd_per_hour)]
    kept = _decide(offers, nodes=1, deadline_h=4.6, on=nodes_in(SAFE))
    assert kept.targets == (Target(SAFE, 1),)


def test_on_demand_that_runs_is_left_where_another_pool_does_the_rest_for_less() -> None:
    offers = [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0), offer(SAFE_B, 4.0)]
    left = _decide(offers, nodes=1, deadline_h=4.6, on=nodes_in(SAFE))
    assert left.targets == (Target(SAFE_B, 1),)


def test_two_zones_that_have_a_node_each_are_not_a_gang_of_two() -> None:
    """Unless the job allows it: it goes on demand though two spot nodes are there."""
    split = [offer(SPOT_A, 2.0, 1), offer(SPOT_B, 2.0, 1), offer(SAFE, 8.0)]
    assert _decide(split, nodes=2).targets == (Target(SAFE, 2),)
    whole = [offer(SPOT_A, 2.0, 2), offer(SPOT_B, 2.0, 1), offer(SAFE, 8.0)]
    assert _decide(whole, nodes=2, deadline_h=8).targets == (Target(SPOT_A, 2),)
