"""A whole job on Compute Engine nodes that are processes here: preempted, saved, finished."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.controller.node_logs import StoreLogs
from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from costopt.store import open_store
from tests.support.cloud_run import CloudRun, write_job
from tests.support.fake_gcs import FakeGcs
from tests.support.gcp.cloud import Cloud
from tests.support.gcp.instance_processes import Bodies
from tests.support.live_run import PATIENCE_S, no_traceback
from tests.support.object_stores import served

pytestmark = [
    pytest.mark.exhaustive("jobs on clouds"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

TYPE = "g2-standard-4"
STEPS = 60
ACCOUNT = """
kind: account
version: 1
owner: me
store: gs://runs/costopt
providers:
  gcp:
    regions: [us-central1]
    instance_types: [{type}]
    project: project-1
    endpoint: {endpoint}
    service_account: nodes@project-1.iam.gserviceaccount.com
"""


@dataclass(frozen=True)
class Run(CloudRun):
    """The test cloud and the bodies of its nodes."""

    cloud: Cloud
    bodies: Bodies

    def saves(self) -> list[str]:
        """The checkpoints that lie in the bucket."""
        return list(open_store("gs://runs/costopt/checkpoints/tiny").keys("step-"))


@pytest.fixture
def run(gcp_cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    gcp_cloud.region("us-central1", "us-central1-a", "us-central1-b")
    gcp_cloud.price("us-central1", TYPE, 0.25)
    gcp_cloud.instances.looks = 0
    write_job(tmp_path / "job", "L4", STEPS)
    account = ACCOUNT.format(type=TYPE, endpoint=gcp_cloud.endpoint)
    (tmp_path / "account.yaml").write_text(account)
    with served(FakeGcs(("runs",))) as storage:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
        bodies = Bodies(gcp_cloud, tmp_path / "disks", storage)
        environment = {"STORAGE_EMULATOR_HOST": storage}
        yield Run(tmp_path, gcp_cloud, bodies, environment=environment)
        bodies.close()


def test_a_job_finishes_through_a_preemption_and_a_killed_controller(run: Run) -> None:
    """The node saves when it hears that it is taken; another controller goes on from there."""
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: bool(run.saves()) or process.poll() is not None, "first save")
        assert process.poll() is None, process.communicate()
        (first,) = run.cloud.instances.alive()
        run.bodies.preempt(first)
        run.wait(lambda: len(run.of(ev.NodeLaunched)) >= 2, "second node")
        process.kill()
    run.hold.unlink()
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    launched = [event.node_id for event in run.of(ev.NodeLaunched)]
    assert launched[0] == first
    assert len(launched) == len(set(launched)) == 2
    ended = {event.node_id: event.cause for event in run.of(ev.NodeEnded)}
    assert set(ended) == set(launched)
    assert ended[first] is EndCause.INTERRUPTED
    assert not run.cloud.instances.alive()
    assert not run.of(ev.WorkLost)
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == STEPS
    assert run.saves()[-1] == f"step-{STEPS:06d}"
    logs = StoreLogs(open_store("gs://runs/costopt"))
    printed = "".join(logs.read("tiny", node_id, 0).text for node_id in launched)
    assert printed.splitlines() == [f"saved {save}" for save in run.saves()]


def test_a_job_waits_for_flex_start_and_finishes_on_it(run: Run) -> None:
    """It is charged for from when its node ran; nothing else is launched meanwhile."""
    policy = run.folder / "job" / "policy.yaml"
    allowed = policy.read_text().replace("greedy_spot", "adaptive")
    policy.write_text(allowed.replace("[spot, on_demand]", "[flex_start, on_demand]"))
    run.cloud.skus.g2("us-central1")
    run.cloud.skus.g2_on_flex_start("us-central1")
    run.cloud.instances.comes_after = timedelta(seconds=5)
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    waits, runs = run.of(ev.NodeLaunched)
    assert (waits.waiting, runs.waiting) == (True, False)
    assert runs.launched_at >= waits.launched_at + timedelta(seconds=5)
    assert runs.micros_per_hour == 860_000
    (ended,) = run.of(ev.NodeEnded)
    assert (ended.node_id, ended.cause) == (runs.node_id, EndCause.RELEASED)
    assert not run.cloud.instances.alive()
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == STEPS
