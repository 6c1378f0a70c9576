"""The baseline that everyone can buy."""

from __future__ import annotations

from costopt.domain.events import NodeLaunched
from costopt.domain.view import Target
from costopt.strategies.baselines import OnDemandStrategy
from tests.support.engine_fixtures import (
    BIG_SAFE,
    HOUR_S,
    SAFE,
    SPOT_A,
    Scene,
    always,
    changing,
    rules,
    task,
)
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

OFFERS = [offer(SPOT_A, 2.0), offer(SAFE, 8.0), offer(BIG_SAFE, 40.0)]


def test_the_cheapest_in_time() -> None:
    assert only(OnDemandStrategy().decide(build_view(task(), OFFERS))).targets == (Target(SAFE, 1),)
    tight = build_view(task(deadline_s=2 * HOUR_S), OFFERS)
    assert only(OnDemandStrategy().decide(tight)).targets == (Target(BIG_SAFE, 1),)


def test_what_runs_is_kept() -> None:
    view = build_view(task(), OFFERS, nodes=nodes_in(BIG_SAFE))
    assert only(OnDemandStrategy().decide(view)).targets == (Target(BIG_SAFE, 1),)


def test_without_an_offer_it_says_so() -> None:
    decision = only(OnDemandStrategy().decide(build_view(task(), OFFERS[:1])))
    assert decision.targets == ()
    assert "no on-demand offer" in decision.reason


def test_a_run_stays_where_it_began_though_another_gets_cheaper() -> None:
    scene = Scene(
        always(SAFE, 9, 8.0),
        changing(BIG_SAFE, (0, 9, 40.0), (HOUR_S, 9, 4.0)),
        jobs=[task()],
        policy=rules("on_demand"),
    )
    scene.finish()
    (launched,) = scene.events(NodeLaunched)
    assert launched.pool == str(SAFE)
    assert scene.summary().interruptions == 0
