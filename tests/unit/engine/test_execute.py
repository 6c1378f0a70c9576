"""Intent, call, outcome; draining; stopping."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from costopt.domain.events import (
    DecisionMade,
    DrainIntended,
    GangFormed,
    JobFinished,
    LaunchFailed,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
    RunStopped,
    TerminateIntended,
)
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Pool
from costopt.domain.view import Target
from costopt.engine.loop import run_until_done, stop_all
from costopt.ledger.summary import JobState
from tests.support.engine_fixtures import (
    SAFE,
    SPOT_A,
    SPOT_B,
    Follow,
    Scene,
    always,
    task,
)
from tests.support.forwarding import Forwarding


def _scene(*targets: Target, **options: Any) -> tuple[Scene, Follow]:
    want = Follow(*targets)
    scene = Scene(
        always(SPOT_A, 4, 2.0),
        always(SPOT_B, 4, 3.0),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        strategy=want,
        **options,
    )
    return scene, want


def test_the_intent_is_written_before_the_call() -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    seen: list[int] = []
    launch = scene.cloud.launch

    def watch(request: Any) -> Any:
        seen.append(len(scene.events(LaunchIntended)))
        return launch(request)

    scene.cloud.launch = watch  # type: ignore[method-assign]
    scene.tick()
    assert seen == [1]
    (intent,) = scene.events(LaunchIntended)
    (node,) = scene.events(NodeLaunched)
    assert (intent.key, intent.pool, intent.nodes) == ("job-0001", str(SPOT_A), 1)
    assert intent.planned_micros_per_hour == node.micros_per_hour == 2_000_000
    assert node.key == intent.key


def test_a_refusal_says_what_the_provider_said() -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.cloud.refusing = {SPOT_A}
    scene.tick()
    (failed,) = scene.events(LaunchFailed)
    assert failed.error == "NoCapacity"
    assert "none left" in failed.message


def test_an_unanswered_launch_is_asked_again_under_its_key_and_no_other() -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.cloud.silent = {"launch"}
    scene.go(120)
    scene.cloud.silent = set()
    scene.tick()
    assert [r.key for r in scene.cloud.requests] == ["job-0001"]
    assert len(scene.living()) == 1


def test_a_pool_that_no_offer_names_is_never_launched_in() -> None:
    nowhere = Pool("aws", "mars", "mars-1", "p3.2xlarge", CapacityType.SPOT)
    scene, _ = _scene(Target(nowhere, 1))
    scene.go(120)
    assert not scene.cloud.requests
    assert not scene.events(LaunchIntended)


class _NeverSaves(Forwarding):
    """The runtime of a gang whose saves hang."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        self.asked += node_ids

    def is_drained(self, job: Job) -> frozenset[str]:
        return frozenset()


def test_a_drain_that_hangs_is_cut_short() -> None:
    scene, want = _scene(Target(SPOT_A, 1), drain_timeout_s=300)
    runtime = _NeverSaves(scene.cloud.runtime)
    scene.cloud.runtime = runtime
    scene.restart()
    scene.go(600)
    want.targets = ()
    scene.go(300)
    assert len(scene.living()) == 1
    scene.go(60)
    assert not scene.living()
    (released,) = scene.events(TerminateIntended)
    assert released.reason == "drain timed out"
    (asked,) = scene.events(DrainIntended)
    assert released.at - asked.at >= timedelta(seconds=300)
    assert runtime.asked == [asked.node_id]


def test_a_release_that_is_not_taken_is_asked_for_again() -> None:
    scene, want = _scene(Target(SPOT_A, 1))
    scene.go(600)
    want.targets = ()
    scene.cloud.silent = {"terminate"}
    scene.go(300)
    assert len(scene.living()) == 1
    assert len(scene.events(TerminateIntended)) == 1
    scene.cloud.silent = set()
    scene.go(120)
    assert not scene.living()
    assert len(scene.events(NodeEnded)) == 1


def test_a_node_that_never_trained_is_released_at_once() -> None:
    scene, want = _scene(Target(SPOT_A, 2))
    scene.cloud.pending = {"sim-0002"}
    scene.tick()
    assert not scene.events(GangFormed)
    want.targets = (Target(SPOT_A, 1),)
    scene.tick()
    assert scene.cloud.released == ["sim-0002"]


def test_stop_saves_gives_everything_back_and_ends() -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.go(1800)
    stop_all(scene.engine, "the user asked to")
    summary = scene.summary()
    assert summary.state is JobState.STOPPED
    assert summary.lost_units == 0
    assert summary.saved_units == summary.done_units > 1000
    assert not scene.living()
    (stopped,) = scene.events(RunStopped)
    assert stopped.reason == "the user asked to"
    assert scene.events(DecisionMade)[-1].rule == "stop"


@pytest.mark.parametrize(("ran_s", "launches"), [(0, 0), (120, 1)])
def test_stop_before_training_ends_as_stopped_too(ran_s: float, launches: int) -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.go(ran_s)
    stop_all(scene.engine, "changed my mind")
    assert scene.summary().state is JobState.STOPPED
    assert len(scene.cloud.requests) == launches
    assert not scene.living()


def test_a_stopped_run_goes_on_where_it_was() -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.go(1800)
    stop_all(scene.engine, "pause")
    saved = scene.summary().saved_units
    scene.restart()
    run_until_done(scene.engine)
    assert scene.summary().state is JobState.FINISHED
    assert scene.summary().lost_units == 0
    assert scene.summary().done_units > saved
    assert len(scene.events(JobFinished)) == 1


@pytest.mark.parametrize("calls", [{"terminate"}, {"nodes"}])
def test_stop_waits_until_the_provider_confirms(calls: set[str]) -> None:
    scene, _ = _scene(Target(SPOT_A, 1))
    scene.go(1200)
    scene.engine.stop("asked to")
    scene.cloud.silent = calls
    for _ in range(10):
        assert not scene.tick().is_done
    scene.cloud.silent = set()
    scene.finish(5)
    assert not scene.living()
