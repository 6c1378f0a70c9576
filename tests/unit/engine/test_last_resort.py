"""Uninterrupted capacity that has no room is asked for at every tick where there is no other."""

from __future__ import annotations

from dataclasses import replace

from costopt.domain.errors import ForbiddenError
from costopt.domain.events import DecisionMade, LaunchFailed
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Pool
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, Scene, always, changing, rules, task

OTHER_SAFE = replace(SAFE, zone="us-east-1b")


def _scene(*pools: Pool, refusing: Pool) -> Scene:
    scene = Scene(
        *(always(pool, 4, 8.0 + at) for at, pool in enumerate(pools)),
        jobs=[task()],
        policy=rules("on_demand"),
        cooldown_s=300.0,
    )
    scene.cloud.refusing = {refusing}
    return scene


def _refused_at_s(scene: Scene) -> list[float]:
    failed = scene.events(LaunchFailed)
    return [(event.at - failed[0].at).total_seconds() for event in failed]


def test_the_only_pool_is_asked_at_every_tick() -> None:
    scene = _scene(SAFE, SPOT_A, refusing=SAFE)
    scene.go(180)
    assert _refused_at_s(scene) == [0, 60, 120]
    scene.cloud.refusing = set()
    scene.tick()
    assert scene.pools() == [SAFE]


def test_a_restarted_controller_asks_as_often() -> None:
    scene = _scene(SAFE, refusing=SAFE)
    scene.tick()
    scene.restart()
    scene.tick()
    assert _refused_at_s(scene) == [0, 60]


def test_a_pool_is_left_alone_while_another_has_room() -> None:
    scene = _scene(SAFE, OTHER_SAFE, refusing=SAFE)
    scene.go(240)
    assert _refused_at_s(scene) == [0]
    assert scene.pools() == [OTHER_SAFE]


def test_spot_is_left_alone_though_there_is_no_other() -> None:
    scene = Scene(
        always(SPOT_A, 4, 2.0), jobs=[task()], policy=rules("greedy_spot"), cooldown_s=300.0
    )
    scene.cloud.refusing = {SPOT_A}
    scene.go(240)
    assert _refused_at_s(scene) == [0]


def test_what_is_forbidden_is_not_asked_for_at_every_tick() -> None:
    scene = _scene(SAFE, refusing=SPOT_A)

    def forbid(request: LaunchRequest) -> tuple[Node, ...]:
        raise ForbiddenError(f"{request.pool}: not yours")

    scene.cloud.inner.launch = forbid  # type: ignore[method-assign]
    scene.go(240)
    assert _refused_at_s(scene) == [0]


def test_a_decision_that_a_cooldown_bound_says_so_once() -> None:
    """Spot refused, so it is launched in the dearer zone, which is kept when spot may be had."""
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 3.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        policy=rules("greedy_spot"),
        cooldown_s=300.0,
    )
    scene.cloud.refusing = {SPOT_A}
    scene.go(600)
    made = scene.events(DecisionMade)
    assert [decision.targets[0][0] for decision in made] == [str(SPOT_A), str(SPOT_B)]
    assert [decision.rule for decision in made] == [None, "cooldown"]
    assert f"{SPOT_A} refused or took a node; left alone until" in made[1].reason


def test_a_pool_that_has_no_room_anyway_binds_nothing() -> None:
    scene = Scene(
        changing(SPOT_A, (0, 4, 2.0), (600, 0, 2.0)),
        always(SPOT_B, 4, 3.0),
        always(SAFE, 4, 8.0),
        jobs=[task()],
        policy=rules("greedy_spot"),
        cooldown_s=300.0,
    )
    scene.go(900)
    made = scene.events(DecisionMade)
    assert [decision.targets[0][0] for decision in made] == [str(SPOT_A), str(SPOT_B)]
    assert [decision.rule for decision in made] == [None, None]
