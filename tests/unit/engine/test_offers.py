"""What of the market may be used, and what becomes of what runs where the rest may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import NodeEnded, NodeLaunched, PriceChanged, SignalStale
from costopt.domain.market import Pool
from costopt.domain.policy import Limits
from costopt.domain.view import Target
from costopt.market.hazard import LearnedHazard
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    SomeHazard,
    always,
    changing,
    rules,
    task,
)
from tests.support.market_fixtures import T0

STALE = Estimate.exact(2.0, Basis.MEASURED, "cached", T0 - timedelta(hours=2))
NOT_A_NUMBER = object.__new__(Estimate)
for name, value in (
    ("value", float("nan")),
    ("low", float("nan")),
    ("high", float("nan")),
    ("basis", Basis.MEASURED),
    ("source", "broken"),
    ("observed_at", T0),
):
    object.__setattr__(NOT_A_NUMBER, name, value)
UNUSABLE = [
    pytest.param(None, "price_unknown", id="unknown"),
    pytest.param(STALE, "price_stale", id="stale"),
    pytest.param(NOT_A_NUMBER, "price_invalid", id="not a number"),
]


@pytest.mark.parametrize(("price", "code"), UNUSABLE)
def test_an_unusable_price_excludes_the_offer(price: Estimate | None, code: str) -> None:
    want = Follow()
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task()], strategy=want)
    scene.cloud.quoted_prices = {SPOT_A: price}
    scene.tick()
    view = want.views[-1]
    assert [o.pool for o in view.offers] == [SAFE]
    assert [(r.pool, r.code) for r in view.rejections] == [(SPOT_A, code)]


@pytest.mark.parametrize(("price", "code"), UNUSABLE)
def test_what_runs_in_a_pool_with_an_unusable_price_is_kept(
    price: Estimate | None, code: str
) -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), always(SPOT_B, 4, 3.0), jobs=[task()])
    scene.go(600)
    scene.cloud.quoted_prices = {SPOT_A: price}
    scene.go(600)
    assert scene.pools() == [SPOT_A]
    assert len(scene.cloud.requests) == 1
    assert not scene.events(PriceChanged)


def test_a_pool_with_an_unusable_price_gets_no_more_nodes() -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()], strategy=want)
    scene.tick()
    scene.cloud.quoted_prices = {SPOT_A: None}
    scene.tick()
    (kept,) = want.views[-1].offers
    assert kept.nodes_available == 0
    assert kept.price_usd_per_hour is not None
    assert kept.price_usd_per_hour.value == 2.0


@pytest.mark.parametrize(
    "calls",
    [
        {"offers"},
        {"nodes"},
        {"notices"},
        {"uninterruptible_s"},
        {"offers", "nodes", "notices", "uninterruptible_s", "launch", "terminate"},
    ],
    ids=["offers", "nodes", "notices", "uninterruptible_s", "everything"],
)
def test_a_silent_provider_stops_nothing(calls: set[str]) -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task()])
    scene.go(600)
    scene.cloud.silent = calls
    scene.go(1800)
    assert scene.pools() == [SPOT_A]
    assert len(scene.events(NodeLaunched)) == 1
    reported = scene.events(SignalStale)
    assert len(reported) == (calls != {"uninterruptible_s"})
    assert all(e.source == "aws" and "no answer" in e.message for e in reported)
    scene.cloud.silent = set()
    scene.finish()
    assert len(scene.events(NodeLaunched)) == 1
    assert scene.summary().on_time is True


def test_a_provider_that_is_unreachable_again_is_reported_again() -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()])
    for calls in ({"offers"}, set(), {"nodes"}, set()):
        scene.cloud.silent = set(calls)
        scene.go(180)
    assert len(scene.events(SignalStale)) == 2


@pytest.mark.parametrize("calls", [{"offers"}, {"nodes"}, {"offers", "nodes", "notices"}])
def test_a_controller_that_starts_while_the_provider_is_silent_keeps_what_runs(
    calls: set[str],
) -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task()])
    scene.go(600)
    scene.cloud.silent = calls
    scene.restart()
    scene.go(600)
    scene.cloud.silent = set()
    scene.go(120)
    assert scene.pools() == [SPOT_A]
    assert len(scene.events(NodeLaunched)) == 1


def _pools_asked(scene: Scene) -> list[Pool]:
    return [r.pool for r in scene.cloud.requests]


@pytest.mark.parametrize("cooldown_s", [0.0, 300.0])
def test_a_pool_that_refuses_gives_way_to_the_next_in_the_same_tick(cooldown_s: float) -> None:
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 3.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        cooldown_s=cooldown_s,
    )
    scene.cloud.refusing = {SPOT_A}
    scene.tick()
    assert _pools_asked(scene) == [SPOT_A, SPOT_B]
    assert scene.pools() == [SPOT_B]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pool_that_refused_is_left_alone_for_the_cooldown(restarts: bool) -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()], cooldown_s=300)
    scene.cloud.refusing = {SPOT_A}
    for _ in range(5):
        scene.tick()
        if restarts:
            scene.restart()
        assert len(scene.cloud.requests) == 1
    scene.tick()
    assert len(scene.cloud.requests) == 2


def test_a_pool_that_took_a_node_is_left_alone_for_the_cooldown() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 1, 2.0), (1000, 0, 2.0), (1010, 1, 2.0)),
        jobs=[task()],
        cooldown_s=600,
    )
    scene.finish()
    first, second = scene.events(NodeLaunched)
    (taken,) = [e for e in scene.events(NodeEnded) if e.cause.value == "interrupted"]
    wait_s = (second.launched_at - taken.ended_at).total_seconds()
    assert 600 <= wait_s <= 660
    assert first.pool == second.pool


def test_a_refusal_drains_nothing_of_what_runs() -> None:
    """The job wants to move; the pool it wants has no room: it stays where it is."""
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(always(SPOT_A, 4, 2.0), always(SPOT_B, 4, 3.0), jobs=[task()], strategy=want)
    scene.go(600)
    scene.cloud.refusing = {SPOT_B}
    want.targets = (Target(SPOT_B, 1),)
    scene.go(600)
    assert scene.pools() == [SPOT_A]
    assert not scene.events(NodeEnded)


def test_a_pool_that_refuses_one_job_keeps_the_other_job_s_nodes() -> None:
    scene = Scene(
        always(SPOT_A, 1, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task(name="one"), task(name="two")],
        cooldown_s=0,
    )
    scene.go(600)
    assert scene.pools("one") == [SPOT_A]
    assert not scene.events(NodeEnded, "one")


def test_a_gang_that_may_not_grow_keeps_what_it_has() -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task(nodes=(1, 2))],
        strategy=want,
        cooldown_s=0,
    )
    scene.tick()
    scene.cloud.refusing = {SPOT_A}
    want.targets = (Target(SPOT_A, 2),)
    scene.tick()
    assert SPOT_A in [o.pool for o in want.views[-1].offers]


def test_a_new_price_is_billed_from_when_it_is_reported() -> None:
    scene = Scene(changing(SPOT_A, (0, 1, 2.0), (1800, 1, 4.0)), jobs=[task(3600, save_s=0)])
    scene.finish()
    (changed,) = scene.events(PriceChanged)
    assert changed.micros_per_hour == 4_000_000
    (ended,) = scene.events(NodeEnded)
    ran_s = (ended.ended_at - T0).total_seconds()
    assert scene.summary().usd == pytest.approx(1.0 + (ran_s - 1800) * 4.0 / 3600)


def test_a_price_from_before_the_launch_does_not_change_the_bill() -> None:
    """Quoted 2 $ from a cache, came out at 3 $: the cache says 2 $ still, and is wrong."""
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task(HOUR_S)])
    scene.policy = rules("greedy_spot", limits=Limits(max_price_ratio=None))
    scene.cloud.surcharge = 1.5
    cached = Estimate.exact(2.0, Basis.MEASURED, "cached", T0 - timedelta(minutes=10))
    scene.cloud.quoted_prices = {SPOT_A: cached}
    scene.restart()
    scene.go(1200)
    assert not scene.events(PriceChanged)
    scene.cloud.quoted_prices = {SPOT_A: replace(cached, observed_at=T0 + timedelta(minutes=15))}
    scene.go(60)
    assert [e.micros_per_hour for e in scene.events(PriceChanged)] == [2_000_000]


def test_pools_that_refuse_do_not_use_up_the_launches_of_the_hour() -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        strategy=want,
        policy=rules("greedy_spot", limits=Limits(max_launches_per_hour=2)),
        cooldown_s=0,
    )
    scene.cloud.refusing = {SPOT_A}
    scene.go(600)
    assert len(scene.cloud.requests) > 5
    want.targets = (Target(SAFE, 1),)
    scene.tick()
    assert scene.pools() == [SAFE]


def test_a_pool_without_room_is_not_asked() -> None:
    scene = Scene(always(SPOT_A, 0, 2.0), jobs=[task()], strategy=Follow(Target(SPOT_A, 1)))
    scene.go(600)
    assert not scene.cloud.requests


class Seldom(SomeHazard):
    """Every pool that can be taken has capacity a third of the time."""

    def availability(self, pool: Pool) -> Estimate | None:
        return Estimate(1 / 3, 0.2, 0.5, Basis.MEASURED, "test")


def test_only_a_pool_that_is_gone_is_judged_by_how_often_it_is_there() -> None:
    want = Follow(Target(SPOT_A, 1))
    gone = changing(SPOT_B, (0, 0, 1.0))
    scene = Scene(
        always(SPOT_A, 1, 2.0), gone, always(SAFE, 4, 8.0), jobs=[task()], strategy=want,
        hazards=Seldom(),
    )  # fmt: skip
    scene.tick()
    scene.tick()
    seen = {o.pool: o.availability for o in want.views[-1].offers}
    assert seen[SPOT_A] is None, "our own node is what leaves it no room"
    assert seen[SAFE] is None
    assert seen[SPOT_B] == Seldom().availability(SPOT_B)


def test_priors_of_a_provider_are_learned_over(monkeypatch: pytest.MonkeyPatch) -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 2.0),
        jobs=[task()],
        strategy=want,
        hazards=LearnedHazard({}),
    )
    hazard = Estimate(0.01, 0.0, 0.1, Basis.PRIOR, "bucket")
    likely = Estimate(0.2, 0.0, 0.5, Basis.PRIOR, "score")
    inner = scene.cloud.offers
    monkeypatch.setattr(
        scene.cloud,
        "offers",
        lambda now: [replace(o, hazard_per_hour=hazard, availability=likely) for o in inner(now)],
    )
    scene.go(2 * HOUR_S)
    offers = {o.pool: o for o in want.views[-1].offers}
    learned = offers[SPOT_A].hazard_per_hour
    assert learned is not None
    assert learned.source.endswith(" h: bucket")
    assert learned.value < hazard.value
    assert offers[SPOT_A].availability is None
    assert offers[SPOT_B].availability == likely
