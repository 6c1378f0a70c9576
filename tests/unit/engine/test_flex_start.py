"""A job on flex-start: it waits at no cost, runs, and leaves what does not come in time."""

from __future__ import annotations

import pytest

from costopt.domain.events import (
    DrainIntended,
    LaunchFailed,
    NodeEnded,
    NodeLaunched,
    TerminateIntended,
)
from costopt.domain.fleet import EndCause, NodeState
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits
from costopt.domain.view import Target
from costopt_sim import SimProvider
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    always,
    changing,
    rules,
    task,
)
from tests.support.market_fixtures import after

FLEX = SPOT_A.with_capacity_type(CapacityType.FLEX_START)
OTHER_FLEX = SPOT_B.with_capacity_type(CapacityType.FLEX_START)
ALL = Limits(capacity_types=tuple(CapacityType))


def _on_flex(scene: Scene) -> list[NodeLaunched]:
    return [event for event in scene.events(NodeLaunched) if event.pool == str(FLEX)]


@pytest.mark.parametrize("strategy", ["adaptive", "milp"])
def test_a_job_waits_runs_and_ends_and_pays_only_for_what_ran(strategy: str) -> None:
    scene = Scene(
        changing(FLEX, (0, 0, 2.0), (HOUR_S, 1, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task(4 * HOUR_S, 40 * HOUR_S)],
        policy=rules(strategy, limits=ALL),
    )
    scene.go(HOUR_S)
    assert scene.summary().usd == 0
    scene.finish()
    waits, runs = scene.events(NodeLaunched)
    assert (waits.waiting, runs.waiting) == (True, False)
    assert waits.node_id == runs.node_id
    assert runs.launched_at == after(HOUR_S)
    (ended,) = scene.events(NodeEnded)
    hours = (ended.ended_at - runs.launched_at).total_seconds() / 3600
    assert scene.summary().usd == pytest.approx(2.0 * hours, abs=2e-6)
    assert scene.summary().on_time is True
    assert scene.summary().interruptions == 0
    assert len(scene.cloud.requests) == 1


@pytest.mark.slow
def test_once_it_runs_it_is_not_left_to_wait_for_spot_that_may_come() -> None:
    scene = Scene(
        changing(FLEX, (0, 1, 2.0)),
        changing(SPOT_A, (0, 0, 1.0)),
        always(SAFE, 9, 8.0),
        jobs=[task(4 * HOUR_S, 40 * HOUR_S)],
        policy=rules("adaptive", limits=ALL),
        tick_s=300,
    )
    scene.finish()
    assert [event.pool for event in scene.events(NodeLaunched)] == [str(FLEX)]
    assert scene.summary().on_time is True


def test_without_it_in_the_policy_flex_start_is_left_alone() -> None:
    scene = Scene(
        always(FLEX, 9, 2.0), always(SAFE, 9, 8.0), jobs=[task()], policy=rules("adaptive")
    )
    scene.finish()
    assert {event.pool for event in scene.events(NodeLaunched)} == {str(SAFE)}


def test_a_request_that_expires_is_a_launch_refused_and_another_pool_takes_over() -> None:
    scene = Scene(
        changing(FLEX, (0, 0, 2.0)),
        changing(OTHER_FLEX, (0, 0, 2.1), (1.5 * HOUR_S, 1, 2.1)),
        always(SAFE, 9, 8.0),
        jobs=[task(4 * HOUR_S, 40 * HOUR_S)],
        policy=rules("adaptive", limits=ALL),
    )
    scene.finish()
    refused = next(e for e in scene.events(NodeEnded) if e.cause is EndCause.NO_CAPACITY)
    assert (refused.pool, refused.ended_at) == (str(FLEX), after(2 * HOUR_S))
    runs = [event for event in scene.events(NodeLaunched) if not event.waiting]
    assert [event.pool for event in runs] == [str(OTHER_FLEX)]
    assert not scene.events(LaunchFailed)


def test_where_the_wait_eats_the_slack_on_demand_takes_over_in_time() -> None:
    """The node is still waited for when it must be given up."""
    scene = Scene(
        changing(FLEX, (0, 0, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task(4 * HOUR_S, 7 * HOUR_S)],
        policy=rules("adaptive", limits=ALL),
    )
    scene.finish()
    assert scene.summary().on_time is True
    assert [event.waiting for event in _on_flex(scene)] == [True] * len(_on_flex(scene))
    assert _on_flex(scene)
    assert scene.events(NodeLaunched)[-1].pool == str(SAFE)
    assert all(not node.state.is_alive for node in scene.cloud.inner.nodes("costopt"))


def test_a_node_that_is_no_longer_desired_is_released_while_it_waits() -> None:
    wants = Follow(Target(FLEX, 1))
    scene = Scene(
        changing(FLEX, (0, 0, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        strategy=wants,
        policy=rules("adaptive", limits=ALL),
    )
    scene.go(600)
    assert [node.state for node in scene.living()] == [NodeState.WAITING]
    assert [len(view.jobs[0].waiting) for view in wants.views][-1] == 1
    assert not wants.views[-1].jobs[0].nodes
    wants.targets = (Target(SAFE, 1),)
    scene.go(300)
    assert scene.pools() == [SAFE]
    assert scene.events(DrainIntended)
    assert scene.events(TerminateIntended)
    (ended,) = scene.events(NodeEnded)
    assert ended.cause is EndCause.RELEASED
    assert [event.waiting for event in _on_flex(scene)] == [True]


def test_what_runs_goes_on_while_its_successor_waits() -> None:
    wants = Follow(Target(SAFE, 1))
    scene = Scene(
        changing(FLEX, (0, 0, 2.0), (HOUR_S, 1, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        strategy=wants,
        policy=rules("adaptive", limits=ALL),
    )
    scene.go(600)
    wants.targets = (Target(FLEX, 1),)
    scene.go(HOUR_S - 700)
    assert sorted(scene.pools()) == sorted([SAFE, FLEX])
    assert scene.summary().done_units > 2000
    scene.go(1800)
    assert scene.pools() == [FLEX]


@pytest.mark.slow
def test_a_controller_that_starts_again_goes_on_waiting_for_the_same_node() -> None:
    scene = Scene(
        changing(FLEX, (0, 0, 2.0), (HOUR_S, 1, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        policy=rules("adaptive", limits=ALL),
        tick_s=300,
    )
    for _ in range(30):
        scene.go(300)
        scene.restart()
    scene.finish()
    assert len(scene.cloud.requests) == 1
    assert [event.waiting for event in scene.events(NodeLaunched)] == [True, False]


def test_one_that_ran_and_was_lost_unseen_is_charged_from_its_launch() -> None:
    scene = Scene(
        changing(FLEX, (0, 0, 2.0), (1200, 1, 2.0)),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        strategy=Follow(Target(FLEX, 1)),
        policy=rules("adaptive", limits=ALL),
    )
    scene.go(600)
    (node,) = scene.living()
    assert isinstance(scene.cloud.inner, SimProvider)
    scene.clock.sleep(1200)
    scene.cloud.inner.fleet.fail(node.node_id, scene.clock.now(), "broke")
    scene.tick()
    (_, runs), (ended,) = _on_flex(scene)[:2], scene.events(NodeEnded)
    assert (runs.launched_at, ended.cause) == (after(1200), EndCause.FAILED)


@pytest.mark.slow
def test_it_is_left_by_plan_shortly_before_its_longest_run_is_over() -> None:
    day_s = 24 * HOUR_S
    scene = Scene(
        always(FLEX, 1, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[task(7.2 * day_s, 14 * day_s)],
        policy=rules("adaptive", limits=ALL),
    )
    scene.go(HOUR_S)
    scene.clock.sleep(6.9 * day_s)
    scene.finish()
    first = scene.events(NodeEnded)[0]
    assert first.cause is EndCause.RELEASED
    assert after(7 * day_s - 1000) < first.ended_at < after(7 * day_s - 100)
    assert scene.summary().interruptions == 0
    assert scene.summary().lost_units == 0
    assert scene.summary().on_time is True
