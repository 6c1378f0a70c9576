"""Gangs of spot nodes in several zones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from costopt.domain.events import DecisionMade, NodeLaunched
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import Offer
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import Decision, Target, View
from costopt.strategies.adaptive.candidates import candidate_of, part_key
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import apply_shield
from costopt.strategies.spread_gangs import spread_of, spread_options
from costopt.views.event import describe_event
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
from tests.support.market_fixtures import P3, after
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

SPOT_C = replace(SPOT_A, zone="us-east-1c")
FAR = replace(SPOT_A, region="us-west-2", zone="us-west-2a")
SAFE_OFFER = offer(SAFE, 8.0)
HALVES = (Target(SPOT_A, 2), Target(SPOT_B, 2))
TWO_ZONES = (offer(SPOT_A, 2.0, 2), offer(SPOT_B, 2.0, 2))


def _job(
    traffic_gib: float | None = 0.0, nodes: tuple[int, int] = (4, 4), deadline_h: float = 16
) -> Job:
    """4 h of work on four nodes."""
    job = task(16 * HOUR_S, deadline_h * HOUR_S, nodes)
    points = tuple(ThroughputSample("V100", gpus, float(gpus)) for gpus in (1, 2, 4))
    resources = replace(job.resources, zone_traffic_gib=traffic_gib)
    return replace(job, resources=resources, throughput=Throughput(points))


def _view(
    offers: Sequence[Offer], job: Job | None = None, nodes: tuple[Node, ...] = (), now_s: float = 0
) -> View:
    return build_view(job or _job(), [*offers, SAFE_OFFER], nodes=nodes, now_s=now_s, done=600.0)


def _decide(
    offers: Sequence[Offer], job: Job | None = None, nodes: tuple[Node, ...] = ()
) -> Decision:
    return only(AdaptiveStrategy().decide(_view(offers, job, nodes)))


def test_two_zones_form_a_gang_that_none_has_room_for() -> None:
    decision = _decide(TWO_ZONES)
    assert decision.targets == HALVES
    assert f"2 × {SPOT_A} + 2 × {SPOT_B}" in decision.reason


@pytest.mark.parametrize(
    "offers",
    [
        (*TWO_ZONES, offer(SPOT_C, 2.0, 4)),
        (offer(SPOT_A, 2.0, 2), offer(SPOT_B, 2.0, 1)),
        (offer(SPOT_A, 2.0, 2), offer(FAR, 2.0, 2)),
    ],
    ids=["a zone has room for all", "too little room", "another region"],
)
def test_otherwise_a_gang_is_in_one_zone(offers: Sequence[Offer]) -> None:
    assert len(_decide(offers).targets) < 2


def test_a_zone_that_has_room_alone_is_left_for_cheaper_ones() -> None:
    assert _decide((*TWO_ZONES, offer(SPOT_C, 6.0, 4))).targets == HALVES


def test_without_leave_of_the_job_a_gang_is_in_one_zone() -> None:
    assert len(_decide(TWO_ZONES, _job(None)).targets) < 2


def test_to_allow_it_changes_nothing_for_a_job_on_one_node() -> None:
    other = offer(replace(SPOT_A, instance_type="p3.8xlarge"), 9.0)
    job = task(4 * HOUR_S, 16 * HOUR_S)
    decided, learned = [], []
    for traffic_gib in (None, 0.0):
        strategy = AdaptiveStrategy()
        allowed = replace(job.resources, zone_traffic_gib=traffic_gib, instance_types=(P3.name,))
        for hour in range(3):
            offers = (offer(SPOT_A, 2.0, hour % 2), offer(SPOT_B, 2.1, 1), other)
            view = _view(offers, replace(job, resources=allowed), now_s=hour * HOUR_S)
            decided.append(only(strategy.decide(view)))
        learned.append(strategy.lifetimes.to_json())
    assert decided[:3] == decided[3:]
    assert learned[0] == learned[1]


def test_traffic_between_zones_counts() -> None:
    """4 units a second: at 0.1 GiB each, $28.80 an hour."""
    view = _view(TWO_ZONES, _job(0.1))
    (spread,) = spread_options(view, view.jobs[0])
    assert spread.usd_per_hour == pytest.approx(4 * 2.0 + 28.8)
    assert spread.score_usd_per_hour == spread.usd_per_hour
    assert len(_decide(TWO_ZONES, _job(0.1)).targets) < 2


def test_a_gang_that_lost_nodes_is_filled_up_elsewhere() -> None:
    offers = (offer(SPOT_A, 2.0, 0), offer(SPOT_B, 2.0, 1), offer(SPOT_C, 2.0, 3))
    decision = _decide(offers, nodes=nodes_in(SPOT_A, 3))
    assert decision.targets == (Target(SPOT_A, 3), Target(SPOT_C, 1))


def test_a_spread_that_runs_is_kept() -> None:
    nodes = (*nodes_in(SPOT_A, 2), *nodes_in(SPOT_B, 2))
    offers = (offer(SPOT_A, 2.0, 0), offer(SPOT_B, 2.0, 0), offer(SPOT_C, 2.0, 9))
    decision = _decide(offers, nodes=nodes)
    assert decision.targets == HALVES
    assert decision.reason.startswith("stay on")
    without_safe = build_view(_job(), offers, nodes=nodes, done=600.0)
    assert only(AdaptiveStrategy().decide(without_safe)).targets == HALVES


def test_it_goes_as_often_as_its_zones_together() -> None:
    strategy = AdaptiveStrategy()
    for hour in range(3):
        view = _view(TWO_ZONES, now_s=hour * HOUR_S)
        strategy.decide(view)
    (spread,) = spread_options(view, view.jobs[0])
    lifetimes = strategy.lifetimes
    candidate = candidate_of(view.jobs[0], spread, lifetimes)
    zones = [lifetimes.rates(part_key("job", pool)).up_per_hour for pool in (SPOT_A, SPOT_B)]
    of_age = candidate.rates.class_at(candidate.age_h)
    assert candidate.age_h == lifetimes.age_h(part_key("job", SPOT_A)) == 3.0
    assert candidate.rates.up_per_hour[of_age] == pytest.approx(sum(z[of_age] for z in zones))


def test_the_shield_counts_what_a_spread_does_within_a_tick() -> None:
    """Half a minute of slack: on the recorded grid it is not interrupted before the end."""
    nodes = (*nodes_in(SPOT_A, 2), *nodes_in(SPOT_B, 2))
    job = replace(_job(), checkpoint=replace(_job().checkpoint, save_s=0.0, restore_s=0.0))
    view = build_view(
        replace(job, deadline_at=after(150.0)),
        [*TWO_ZONES, SAFE_OFFER],
        nodes=nodes,
        done=job.work.amount - 4 * 120.0,
        uninterruptible_s=300.0,
    )
    decision = Decision("job", HALVES, "as told")
    assert apply_shield(view, view.jobs[0], decision).targets == HALVES
    assert spread_of(view, view.jobs[0], (Target(SPOT_A, 2), Target(SAFE, 2))) is None


def test_where_zones_do_not_tell_their_room_halves_are_tried_once_they_refuse_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(
        always(SPOT_A, 2, 2.0),
        always(SPOT_B, 3, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[_job()],
        policy=rules("adaptive"),
    )
    list_offers = scene.cloud.offers
    monkeypatch.setattr(
        scene.cloud,
        "offers",
        lambda now: [replace(o, nodes_available=None) for o in list_offers(now)],
    )
    scene.tick()
    asked = [(request.pool, request.nodes) for request in scene.cloud.requests]
    assert asked == [(SPOT_A, 4), (SPOT_B, 4), (SPOT_A, 2), (SPOT_B, 2)]
    assert scene.pools() == [SPOT_A, SPOT_A, SPOT_B, SPOT_B]
    scene.go(1200)
    assert len(scene.cloud.requests) == 4


def test_a_job_goes_on_with_the_rest_of_its_gang_and_is_done() -> None:
    gone = changing(SPOT_B, (0, 2, 2.0), (2 * HOUR_S, 0, 2.0))
    scene = Scene(
        always(SPOT_A, 2, 2.0),
        gone,
        always(SPOT_C, 1, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[_job(nodes=(2, 4), deadline_h=5.5)],
        policy=rules("adaptive"),
        tick_s=600.0,
    )
    scene.finish()
    assert scene.summary().on_time is True
    spread = next(e for e in scene.events(DecisionMade) if len(e.targets) > 1)
    assert spread.targets == ((str(SPOT_A), 2), (str(SPOT_B), 2))
    assert f"2 × {SPOT_A} + 2 × {SPOT_B}" in describe_event(spread).detail
    launched = [event.pool for event in scene.events(NodeLaunched)]
    assert launched[:4] == [str(SPOT_A)] * 2 + [str(SPOT_B)] * 2
    assert launched[4:6] == [str(SAFE)] * 2
