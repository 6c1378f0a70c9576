"""A daemon pauses a job whose gang is idle, where its policy releases it, until it is resumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from costopt.daemon.reader import TenantReader
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.control import DesiredState, Mode
from costopt.domain.events import HealthChanged, JobFinished
from costopt.domain.job import Job
from costopt.domain.progress import Progress
from costopt_sim.runtime import VirtualRuntime
from tests.support.daemon_fixtures import POLICY, DaemonScene

pytestmark = pytest.mark.process


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """By job, the work at which its gang makes no more progress."""
    reached: dict[str, float] = {}
    honest = VirtualRuntime.progress

    def progress(runtime: VirtualRuntime, job: Job, now: datetime) -> Progress:
        found = honest(runtime, job, now)
        return replace(found, done_units=reached.get(job.name, found.done_units))

    monkeypatch.setattr(VirtualRuntime, "progress", progress)
    return reached


def test_an_idle_gang_is_released_and_its_job_paused_until_it_is_resumed(
    scene: DaemonScene, stuck: dict[str, float]
) -> None:
    scene.submit("one", policy=f"{POLICY}health: {{idle: release}}\n")
    scene.go(30)
    stuck["one"] = scene.job().summary.done_units
    scene.go(60)
    assert scene.living() == []
    assert scene.job().submission.desired_state is DesiredState.PAUSED
    assert "idle" in scene.job().summary.health
    service = scene.daemon.service
    assert [a.kind for a in TenantReader(service).alerts(0) if "planned progress" in a.message] == [
        "nodes"
    ]
    metrics = collect_metrics(scene.daemon.service)
    assert [bool(job.summary.health) for job in metrics.jobs] == [True]
    scene.restart()
    scene.go(30)
    assert scene.living() == [], "a restart does not resume it"
    del stuck["one"]
    scene.daemon.service.resume("one", "me")
    scene.go(300)
    assert len(scene.events(JobFinished)) == 1
    assert scene.events(HealthChanged)[-1].issue is None


def test_in_recommend_nothing_is_released_without_approval(
    scene: DaemonScene, stuck: dict[str, float]
) -> None:
    scene.submit("one", policy=f"{POLICY}health: {{idle: release}}\n")
    scene.go(30)
    stuck["one"] = scene.job().summary.done_units
    scene.daemon.service.set_mode(Mode.RECOMMEND, "me")
    scene.go(60)
    assert "idle" in scene.job().summary.health
    assert len(scene.living()) == 1
    assert scene.job().submission.desired_state is DesiredState.RUN
