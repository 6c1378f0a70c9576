"""keep_failed: the node on which a job's command failed lives on for a while."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.events import JobFailed, NodeEnded
from costopt.domain.job import GangState, Job, Progress
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Scene, always, task
from tests.support.failing_runtime import FailingRuntime


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
