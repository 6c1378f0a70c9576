"""Gangs are formed of whole sets of nodes, and again when a member is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.events import DrainIntended, GangFormed, NodeLaunched
from costopt.domain.job import Phase
from costopt.domain.view import Target
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    always,
    changing,
    task,
)

TWO = Target(SPOT_A, 2)


def _sizes(scene: Scene) -> list[int]:
    return [len(e.node_ids) for e in scene.events(GangFormed)]


def test_a_gang_may_stand_in_two_pools() -> None:
    scene = Scene(
        always(SPOT_A, 1, 2.0),
        always(SPOT_B, 1, 3.0),
        jobs=[task(nodes=(2, 2))],
        strategy=Follow(Target(SPOT_A, 1), Target(SPOT_B, 1)),
    )
    scene.finish()
    (formed,) = scene.events(GangFormed)
    assert formed.generation == 1
    assert set(formed.node_ids) == {"sim-0001", "sim-0002"}


def test_a_gang_waits_until_its_last_node_runs() -> None:
    scene = Scene(always(SPOT_A, 2, 2.0), jobs=[task(nodes=(1, 2))], strategy=Follow(TWO))
    scene.cloud.pending = {"sim-0002"}
    scene.go(300)
    assert _sizes(scene) == []
    scene.cloud.pending = set()
    scene.go(300)
    assert _sizes(scene) == [2]


def test_a_node_that_was_starting_when_the_provider_became_unreachable_is_starting_still() -> None:
    scene = Scene(always(SPOT_A, 1, 2.0), jobs=[task()])
    scene.cloud.pending = {"sim-0001"}
    scene.tick()
    scene.cloud.silent = {"nodes"}
    scene.go(600)
    assert _sizes(scene) == []


def test_a_lost_member_is_replaced_and_the_gang_is_whole_again() -> None:
    want = Follow(Target(SPOT_A, 2))
    scene = Scene(
        changing(SPOT_A, (0, 2, 2.0), (3610, 1, 2.0), (3630, 2, 2.0)),
        jobs=[task(nodes=(2, 2))],
        strategy=want,
        cooldown_s=0,
    )
    scene.go(3600)
    scene.go(180)
    assert _sizes(scene) == [2, 2]
    first, second = scene.events(GangFormed)
    assert len(set(first.node_ids) & set(second.node_ids)) == 1
    assert len(scene.events(NodeLaunched)) == 3
    assert scene.summary().lost_units > 0
    scene.finish()
    assert scene.summary().done_units == 4 * HOUR_S


@pytest.mark.parametrize(("fewest", "sizes"), [(1, [2, 1, 2]), (2, [2, 2])])
def test_the_rest_trains_on_only_where_the_job_allows_so_few(fewest: int, sizes: list[int]) -> None:
    want = Follow(Target(SPOT_A, 2))
    scene = Scene(
        changing(SPOT_A, (0, 2, 2.0), (3610, 1, 2.0), (5400, 2, 2.0)),
        jobs=[task(nodes=(fewest, 2))],
        strategy=want,
        cooldown_s=0,
    )
    scene.finish()
    assert _sizes(scene) == sizes


def test_a_move_forms_the_new_gang_and_loses_nothing() -> None:
    want = Follow(Target(SPOT_A, 1))
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0), jobs=[task()], strategy=want)
    scene.go(1200)
    want.targets = (Target(SAFE, 1),)
    scene.go(1200)
    assert scene.pools() == [SAFE]
    assert _sizes(scene) == [1, 1]
    summary = scene.summary()
    assert summary.lost_units == 0
    assert summary.pool_switches == 1
    assert summary.saved_units > 1000


def test_phases_change_the_size_of_the_gang() -> None:
    phases = (Phase("warm", 0.25, 1, 1), Phase("main", 0.5, 3, 4), Phase("tail", 0.25, 2, 2))
    job = replace(task(nodes=(1, 4)), phases=phases)
    scene = Scene(always(SPOT_A, 4, 2.0), always(SAFE, 9, 8.0), jobs=[job])
    scene.finish()
    sizes = _sizes(scene)
    assert sizes[0] == 1
    assert set(sizes[1:-1]) <= {3, 4}
    assert sizes[-1] == 2
    assert len(sizes) == 3
    assert scene.summary().on_time is True
    assert scene.summary().lost_units == 0


def test_a_restarted_controller_forms_no_new_gang() -> None:
    scene = Scene(always(SPOT_A, 4, 2.0), jobs=[task()])
    scene.go(1200)
    scene.restart()
    scene.go(1200)
    assert _sizes(scene) == [1]


def test_a_drain_that_was_announced_but_not_asked_for_is_asked_by_the_next_controller() -> None:
    """The controller died between its intent and the call: the node still saves."""
    scene = Scene(
        always(SPOT_A, 4, 2.0), jobs=[task(save_s=10)], strategy=Follow(Target(SPOT_A, 1))
    )
    scene.go(1500)
    (node,) = scene.living()
    scene.ledger.append(
        DrainIntended(at=scene.clock.now(), job="job", node_id=node.node_id, reason="moved")
    )
    scene.strategy = Follow()
    scene.restart()
    scene.go(300)
    assert not scene.living()
    assert scene.summary().lost_units == 0
    assert scene.summary().saved_units > 1300


def test_a_job_with_little_slack_saves_before_the_shield_would_take_it_off_spot() -> None:
    job = task(3 * HOUR_S, deadline_s=3.3 * HOUR_S)
    auto = replace(job, checkpoint=replace(job.checkpoint, interval_s=None))
    scene = Scene(always(SPOT_A, 1, 1.0), always(SAFE, 8, 3.0), jobs=[auto])
    scene.finish()
    assert {e.pool for e in scene.events(NodeLaunched)} == {str(SPOT_A)}
