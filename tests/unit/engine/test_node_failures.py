"""Nodes that fail, are retained after a failure, or cost money after the deadline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from costopt.domain.events import (
    JobFailed,
    LaunchIntended,
    NodeEnded,
    NodeGivenUp,
    NodeLaunched,
    SignalStale,
)
from costopt.domain.fleet import EndCause
from costopt.domain.gpu_health import HealthRules
from costopt.domain.job import Job
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import CheckpointRecord
from costopt.domain.view import Target
from costopt.engine.node_failures import MAX_DEATHS
from costopt.engine.overdue import GANG
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, Follow, Scene, always, task
from tests.support.failing_runtime import FailingRuntime
from tests.support.forwarding import Forwarding
from tests.support.unhealthy_nodes import Condition, UnhealthyRuntime, unhealthy_scene


class Mute(Forwarding):
    """A runtime that hears nothing of the nodes that are ``mute``."""

    def __init__(self, inner: Any, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene
        self.mute = set[str]()
        self.silent_s: dict[str, float] = {}
        self.asked: list[str] = []

    def unreported(self, job: Job, node_ids: Iterable[str]) -> frozenset[str]:
        asked = list(node_ids)
        self.asked += asked
        return frozenset(self.mute.intersection(asked))

    def unreachable_s(self, job: Job, node_ids: Iterable[str]) -> dict[str, float]:
        return {node_id: s for node_id in node_ids if (s := self.silent_s.get(node_id))}

    def progress(self, job: Job, now: datetime) -> Progress:
        reported: Progress = self._inner.progress(job, now)
        if self.mute.isdisjoint(node.node_id for node in self._scene.living()):
            return reported
        return Progress(state=GangState.STARTING, generation=reported.generation)

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        found: tuple[CheckpointRecord, ...] = self._inner.checkpoints(job, after_units)
        heard = self.mute.isdisjoint(node.node_id for node in self._scene.living())
        return found if heard else ()


def scene_of(**options: Any) -> tuple[Scene, Mute]:
    scene = Scene(
        always(SPOT_A, 8, 1.0),
        always(SPOT_B, 8, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[task(8 * HOUR_S)],
        strategy=Follow(Target(SPOT_A, 1)),
        **options,
    )
    runtime = Mute(scene.cloud.runtime, scene)
    scene.cloud.runtime = runtime
    scene.restart()
    return scene, runtime


def die(scene: Scene, why: str = "the agent ended: ValueError: embedded null byte") -> None:
    """The job's only node ends by itself."""
    (node,) = scene.living()
    scene.cloud.inner.fleet.fail(node.node_id, scene.clock.now(), why)  # type: ignore[attr-defined]


def test_nodes_that_keep_ending_alone_fail_the_job_and_each_next_launch_waits_longer() -> None:
    scene, _ = scene_of()
    for _ in range(400):
        scene.tick()
        if scene.living() and not scene.events(JobFailed):
            die(scene)
    (failed,) = scene.events(JobFailed)
    assert len(scene.events(NodeLaunched)) == MAX_DEATHS
    assert "embedded null byte" in failed.message
    assert {e.message for e in scene.events(NodeEnded)} == {
        "the agent ended: ValueError: embedded null byte"
    }
    assert not scene.living()
    assert scene.events(SignalStale), "it is reported while it goes on, and not only at the end"
    at = [e.at for e in scene.events(LaunchIntended)]
    waits_s = [(b - a).total_seconds() for a, b in pairwise(at)]
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] >= 240


def test_deaths_are_forgotten_once_work_is_saved_and_across_restarts() -> None:
    scene, _ = scene_of()
    for _ in range(2 * MAX_DEATHS):
        while not scene.living():
            scene.tick()
        scene.go(2 * HOUR_S / 3)
        if scene.living():
            die(scene)
        scene.tick()
        scene.restart()
    assert not scene.events(JobFailed)
    assert len(scene.events(NodeLaunched)) > MAX_DEATHS


def test_a_job_that_is_retried_may_fail_as_often_again() -> None:
    scene, _ = scene_of()
    for _ in range(100):
        scene.tick()
        if scene.living() and not scene.events(JobFailed):
            die(scene)
    scene.engine.retry("job")
    scene.finish()
    assert scene.summary().on_time


def test_a_node_that_never_reports_is_given_up_and_replaced() -> None:
    scene, runtime = scene_of()
    runtime.mute = {"sim-0001"}
    scene.tick()
    scene.go(480)
    assert not scene.events(NodeGivenUp)
    scene.go(240)
    (given_up,) = scene.events(NodeGivenUp)
    (launched, *_) = scene.events(NodeLaunched)
    waited = given_up.at - launched.launched_at
    assert timedelta(seconds=600) <= waited <= timedelta(seconds=720)
    assert [n.node_id for n in scene.living()] == ["sim-0002"]
    assert [e.cause for e in scene.events(NodeEnded)] == [EndCause.RELEASED]
    assert len(scene.events(SignalStale)) == 1


def test_the_image_is_named_as_the_suspect_after_two_and_there_is_no_end_of_trying() -> None:
    scene, runtime = scene_of()
    runtime.mute = {f"sim-{n:04d}" for n in range(1, 6)}
    scene.go(9 * HOUR_S)
    assert len(scene.events(NodeGivenUp)) == 5
    assert not scene.events(JobFailed)
    assert [n.node_id for n in scene.living()] == ["sim-0006"]
    assert len(scene.living()) == 1
    assert not scene.engine.failing_nodes, "work was saved since"
    scene, runtime = scene_of()
    runtime.mute = {f"sim-{n:04d}" for n in range(1, 6)}
    while len(scene.events(NodeGivenUp)) < 2:
        scene.tick()
    assert "image" in scene.engine.failing_nodes["job"]
    assert ["image" in e.message for e in scene.events(SignalStale)] == [False, True]


@pytest.mark.parametrize("start_s", [1200.0, 3000.0])
def test_a_pool_whose_nodes_start_slowly_is_given_its_time(start_s: float) -> None:
    scene, runtime = scene_of()
    scene.go(1800)
    record = scene.engine.journal.records["job"]
    assert record.longest_start_s[SPOT_A] > 0
    record.longest_start_s[SPOT_A] = start_s
    die(scene)
    scene.tick()
    runtime.mute = {n.node_id for n in scene.living()}
    record.have_trained.clear()
    scene.go(2 * start_s)
    assert not scene.events(NodeGivenUp)


def test_a_node_that_has_trained_is_asked_nothing() -> None:
    scene, runtime = scene_of()
    scene.go(3 * HOUR_S)
    assert not runtime.asked


def test_a_start_that_takes_longer_than_declared_succeeds_in_the_end() -> None:
    scene, runtime = scene_of()
    slow = timedelta(minutes=35)
    for _ in range(240):
        now = scene.clock.now()
        runtime.mute = {n.node_id for n in scene.living() if now - n.launched_at < slow}
        scene.tick()
    assert len(scene.events(NodeGivenUp)) == 2
    assert scene.engine.journal.records["job"].training


def test_how_long_the_nodes_of_another_job_took_says_not_much() -> None:
    scene, runtime = scene_of()
    scene.engine.add(task(name="other"), scene.engine._terms["job"])
    scene.tick()
    record = scene.engine.journal.records["other"]
    record.longest_start_s[SPOT_A] = 1e9
    runtime.mute = {n.node_id for n in scene.living()}
    scene.go(HOUR_S)
    assert scene.events(NodeGivenUp)


def test_a_node_that_trained_and_reports_no_longer_is_given_up_after_half_an_hour() -> None:
    scene, runtime = scene_of()
    scene.go(HOUR_S)
    runtime.silent_s = {"sim-0001": 1799.0, "sim-0009": 1e6}
    scene.tick()
    assert not scene.events(NodeGivenUp)
    runtime.silent_s["sim-0001"] = 1801.0
    scene.tick()
    (given_up,) = scene.events(NodeGivenUp)
    assert "no heartbeat for 30 min" in given_up.message
    scene.finish()
    assert [n.node_id for n in scene.events(NodeLaunched)] == ["sim-0001", "sim-0002"]
    assert len(scene.events(NodeGivenUp)) == 1


class FailingOn(FailingRuntime):
    """The command of failing jobs fails on the last node of the gang."""

    def progress(self, job: Job, now: datetime) -> Progress:
        reported = super().progress(job, now)
        is_failed = reported.state is GangState.FAILED
        return replace(reported, failed_node="sim-0002") if is_failed else reported


def failed_scene(keep_s: float) -> tuple[Scene, FailingRuntime]:
    job = replace(task(5 * HOUR_S, nodes=(2, 2)), keep_failed_s=keep_s)
    scene = Scene(always(SPOT_A, 9, 2.0), always(SAFE, 9, 8.0), jobs=[job])
    runtime = FailingOn(scene.cloud.runtime)
    scene.cloud.runtime = runtime
    scene.restart()
    scene.go(600)
    assert len(scene.living()) == 2
    runtime.failing.add("job")
    scene.go(180)
    return scene, runtime


def living(scene: Scene) -> list[str]:
    return [node.node_id for node in scene.living()]


def test_the_node_that_failed_lives_on_for_the_time_that_the_job_names() -> None:
    scene, _ = failed_scene(1800.0)
    (failed,) = scene.events(JobFailed)
    assert failed.node_id == "sim-0002"
    assert living(scene) == ["sim-0002"]
    scene.restart()
    scene.go(1500)
    assert living(scene) == ["sim-0002"]
    scene.finish()
    assert living(scene) == []
    ended = max(event.ended_at for event in scene.events(NodeEnded))
    assert timedelta(0) <= ended - failed.at - timedelta(seconds=1800) <= timedelta(seconds=120)


def test_without_keep_failed_all_nodes_are_released() -> None:
    scene, _ = failed_scene(0.0)
    assert living(scene) == []


def test_a_job_that_is_cancelled_keeps_no_node() -> None:
    scene, _ = failed_scene(1800.0)
    scene.engine.stop("cancelled", "job")
    scene.go(120)
    assert living(scene) == []


def test_a_job_that_is_tried_again_goes_on_with_the_node() -> None:
    scene, runtime = failed_scene(1800.0)
    runtime.failing.clear()
    scene.engine.retry("job")
    scene.go(300)
    assert "sim-0002" in living(scene)
    assert len(scene.living()) == 2


HUNG = Condition(hangs=True)


def overdue_scene() -> tuple[Scene, UnhealthyRuntime]:
    return unhealthy_scene(HealthRules(), 1, deadline_s=4 * HOUR_S)


def alerts(scene: Scene) -> list[SignalStale]:
    return [e for e in scene.events(SignalStale) if e.source == GANG]


def test_a_gang_that_saves_nothing_after_its_deadline_is_an_alert_whenever_dollars_double() -> None:
    scene, runtime = overdue_scene()
    runtime.normal = HUNG
    scene.go(4.9 * HOUR_S)
    assert alerts(scene) == []
    scene.go(0.2 * HOUR_S)
    (alert,) = alerts(scene)
    assert "$1.00 since the deadline, $1.00 more an hour" in alert.message
    assert alert.message in scene.engine.failing_nodes["job"]
    scene.go(8.9 * HOUR_S)
    at = [event.at for event in alerts(scene)]
    assert [round((b - a) / timedelta(hours=1)) for a, b in pairwise(at)] == [1, 2, 4]


def test_a_late_gang_that_saves_is_not_an_alert() -> None:
    scene, runtime = overdue_scene()
    scene.go(8 * HOUR_S)
    assert alerts(scene) == []
    assert "job" not in scene.engine.failing_nodes
    runtime.normal = HUNG
    scene.go(3 * HOUR_S)
    assert len(alerts(scene)) >= 1
    runtime.normal = Condition()
    scene.go(2 * HOUR_S)
    assert "job" not in scene.engine.failing_nodes, "it saves again"
