"""The trouble of one job stays its own: told of, tried again at every tick, felt by no other."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costopt.daemon.intake.admission import AdmittedJob, load_submission
from costopt.daemon.loop import job_sync
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.control import Submission
from costopt.domain.errors import StoreError
from costopt.domain.events import JobFinished, JobSubmitted, NodeLaunched, SignalStale, WorkLost
from costopt.domain.job import Job
from costopt.domain.progress import Progress
from costopt.domain.view import Desired, JobView, View
from costopt.engine import engine, view_builder
from costopt.engine.engine import Engine
from costopt.engine.view_builder import ViewBuilder
from costopt.ledger.summary import JobState
from costopt.strategies.baselines import GreedySpotStrategy
from costopt.strategies.milp import MilpStrategy
from tests.support.daemon_fixtures import POLICY, DaemonScene
from tests.support.engine_fixtures import SAFE

CALLS = (
    "form_gang",
    "progress",
    "checkpoints",
    "rejected_checkpoints",
    "node_reports",
    "power_limits",
    "drain",
    "is_drained",
)


def _refuse(monkeypatch: pytest.MonkeyPatch, scene: DaemonScene, call: str) -> None:
    """From now on the store of job one refuses this call."""
    response = getattr(scene.cloud.runtime, call)

    def refuse(job: Job, *rest: object) -> object:
        if job.name == "one":
            raise StoreError(f"no permission to {call}")
        return response(job, *rest)

    monkeypatch.setattr(scene.runtime, call, refuse, raising=False)


@pytest.mark.parametrize(
    ("call", "restarted"),
    [*((call, False) for call in CALLS), ("form_gang", True), ("progress", True)],
)
def test_a_store_that_refuses_one_job(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch, call: str, restarted: bool
) -> None:
    scene.submit("one", "two", hours=0.3)
    scene.go(8)
    with monkeypatch.context() as patch:
        if restarted:
            scene.restart()
        _refuse(patch, scene, call)
        if "drain" in call:
            scene.daemon.service.pause("one", "me")
        scene.go(8)
        reported = [e for e in scene.events(SignalStale) if e.message == f"no permission to {call}"]
        assert len(reported) == (0 if call == "form_gang" and not restarted else 1)
        alerts = [(a.job, a.kind) for a in scene.reader.alerts()]
        assert alerts == ([("one", "trouble")] if reported else [])
        assert (scene.job().blocked_by != "") == bool(reported)
        scene.go(25)
        assert scene.job("two").summary.state is JobState.FINISHED
        assert scene.daemon.board.tick_failure == ""
    if "drain" in call:
        scene.daemon.service.resume("one", "me")
    scene.go(35)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.job().blocked_by == ""
    assert len(scene.events(JobFinished)) == 1
    assert scene.events(SignalStale, "two") == []
    assert scene.events(WorkLost, "two") == []
    assert len(scene.events(NodeLaunched, "two")) == 1
    assert scene.living() == []


PACED_AND_JOINT: dict[str, type[GreedySpotStrategy | MilpStrategy]] = {
    "greedy_spot": GreedySpotStrategy,
    "milp": MilpStrategy,
}


@pytest.mark.parametrize("name", PACED_AND_JOINT)
def test_a_strategy_that_raises_for_one_job(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = PACED_AND_JOINT[name]
    decide = kind.decide

    def fail(self: Any, view: View) -> Desired:
        if any(job_view.job.name == "one" for job_view in view.jobs):
            raise RuntimeError("no such luck")
        return decide(self, view)

    policy = POLICY.replace("greedy_spot", name)
    scene.submit("one", "two", "three", hours=0.3, policy=policy)
    scene.go(8)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "decide", fail)
        scene.go(4)
        assert scene.daemon.board.tick_failure == ""
        (reported,) = scene.events(SignalStale)
        assert reported.source == "the job's strategy"
        assert "no such luck" in reported.message
        assert [(a.job, a.kind) for a in scene.reader.alerts()] == [("one", "trouble")]
        assert "no such luck" in scene.job().blocked_by
        figures = collect_metrics(scene.daemon.service).jobs
        assert {job.job: job.is_failing for job in figures} == {
            "one": True, "two": False, "three": False,
        }  # fmt: skip
        assert len(scene.living()) == 1, "what runs goes on"
        scene.restart()
        scene.go(26)
        for other in ("two", "three"):
            assert scene.job(other).summary.state is JobState.FINISHED
            assert scene.events(SignalStale, other) == []
    scene.go(35)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.job().blocked_by == ""
    assert scene.living() == []


def test_a_job_whose_strategy_never_works_is_in_time(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, view: View) -> Desired:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(GreedySpotStrategy, "decide", fail)
    scene.submit("one", hours=1.0, deadline="3h")
    scene.go(30)
    assert scene.living() == [], "there is time yet"
    scene.go(150)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.job().summary.on_time
    assert [e.pool for e in scene.events(NodeLaunched)] == [str(SAFE)]


def test_what_a_node_says_that_cannot_be_computed_with(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", "two", hours=0.3)
    scene.go(8)

    response = scene.cloud.runtime.progress

    def overflow(job: Job, now: datetime) -> Progress:
        return response(job, now - timedelta(days=1e9 if job.name == "one" else 0))

    with monkeypatch.context() as patch:
        patch.setattr(scene.runtime, "progress", overflow, raising=False)
        scene.go(3)
    (reported,) = scene.events(SignalStale)
    assert reported.message.startswith("OverflowError")
    assert scene.daemon.board.tick_failure == ""
    scene.go(35)
    assert scene.job().summary.state is JobState.FINISHED


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_command_that_cannot_be_forgiven_yet_is_forgiven_later(
    scene: DaemonScene, cancelled: bool
) -> None:
    refusing = ["the store refused"]

    def forgive(_: Job) -> None:
        if refusing:
            raise StoreError(refusing[0])

    scene.submit("one", "two", hours=0.3)
    scene.go(8)
    scene.runtime.failing.add("one")
    scene.go(1)
    scene.daemon._site = replace(scene.daemon._site, retry=forgive)
    scene.daemon._controlled()._roll._site = scene.daemon._site
    scene.runtime.failing.clear()
    scene.daemon.service.resume("one", "me")
    scene.go(30)
    assert scene.job("two").summary.state is JobState.FINISHED
    assert scene.job().summary.state is JobState.FAILED
    assert scene.job().blocked_by == "the store refused"
    if cancelled:
        scene.daemon.service.cancel("one", "me")
        scene.go(3)
        assert scene.daemon.board.snapshot.troubles == {}
        return
    refusing.clear()
    scene.go(30)
    assert scene.job().summary.state is JobState.FINISHED


def test_what_cannot_be_read_is_read_once_until_it_changes(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counting(submission: Submission) -> AdmittedJob:
        read.append(submission.name)
        return load_submission(submission)

    monkeypatch.setattr(job_sync, "load_submission", counting)
    scene.submit("one", "two", hours=0.3)
    known = scene.registry.submission("one")
    assert known is not None
    scene.registry.submit(replace(known, name="old", job_document="kind: other"))
    scene.go(10)
    assert read.count("old") == 1
    (alert,) = scene.reader.alerts()
    assert (alert.kind, alert.job) == ("trouble", "old")
    assert "kind" in scene.job("old").blocked_by
    scene.daemon.service.resume("old", "me")
    scene.go(10)
    assert read.count("old") == 2
    assert len(scene.living("one")) == len(scene.living("two")) == 1


def test_a_job_that_cannot_be_read_is_a_failure_until_it_is_cancelled(scene: DaemonScene) -> None:
    scene.submit("one")
    known = scene.registry.submission("one")
    assert known is not None
    scene.registry.submit(replace(known, name="old", job_document="kind: other"))
    scene.go(2)
    assert scene.daemon.board.snapshot.troubles.keys() == {"old"}
    scene.daemon.service.cancel("old", "me")
    for _ in ("the same daemon", "the next one"):
        scene.go(2)
        assert scene.daemon.board.snapshot.troubles == {}
        assert scene.job("old").blocked_by == ""
        assert scene.job("old").summary.state is JobState.WAITING
        scene.restart()


@pytest.mark.parametrize("step", ["view", "budget", "submission"])
def test_a_step_of_the_engine_that_fails_for_one_job(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    view_of, submitted, hold = (
        ViewBuilder._job_view, view_builder.job_submitted_event, Engine._hold_to_budget
    )  # fmt: skip

    def view(self: ViewBuilder, name: str) -> JobView:
        if name == "one":
            raise ZeroDivisionError("no such luck")
        return view_of(self, name)

    def budget(self: Engine, name: str, *rest: Any) -> None:
        if name == "one":
            raise ZeroDivisionError("no such luck")
        hold(self, name, *rest)

    def event(job: Job, *rest: Any) -> JobSubmitted:
        made = submitted(job, *rest)
        return replace(made, baseline_wh=math.nan) if job.name == "one" else made

    def fail() -> None:
        monkeypatch.setattr(ViewBuilder, "_job_view", view if step == "view" else view_of)
        monkeypatch.setattr(Engine, "_hold_to_budget", budget if step == "budget" else hold)
        monkeypatch.setattr(
            engine, "job_submitted_event", event if step == "submission" else submitted
        )

    if step == "submission":
        fail()
    scene.submit("one", "two", hours=0.3)
    scene.go(8)
    fail()
    scene.go(3)
    assert scene.daemon.board.tick_failure == ""
    assert [(a.job, a.kind) for a in scene.reader.alerts()] == [("one", "trouble")]
    assert scene.job().blocked_by
    assert len(scene.living("two")) == 1
    if step == "view":
        assert len(scene.living("one")) == 1, "what runs is kept"
        assert scene.events(WorkLost) == []
        scene.daemon.service.pause("one", "me")
        scene.go(8)
        assert scene.living("one") == []
        scene.daemon.service.resume("one", "me")
    scene.go(20)
    assert scene.job("two").summary.state is JobState.FINISHED
    monkeypatch.undo()
    scene.go(40)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.job().blocked_by == ""
