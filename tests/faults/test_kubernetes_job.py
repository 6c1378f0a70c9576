"""Whole jobs in pods of a real API server, which are processes here: evicted, saved, finished."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from costopt.domain.market import CapacityType, Pool
from tests.support.cloud_run import CloudRun, write_example, write_job
from tests.support.fake_gcs import FakeGcs
from tests.support.kubernetes.cluster import NewCluster, node
from tests.support.kubernetes.kubelet import PodProcesses
from tests.support.live_run import PATIENCE_S, no_traceback
from tests.support.node_folder import variables
from tests.support.object_stores import served

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
TYPE = "g4dn.xlarge"
ZONES = ("zone-a", "zone-b", "zone-c")
"""A pool that took a node is left alone for a while."""
STEPS = 20
POOL = Pool("kubernetes", "test", "zone-a", TYPE, CapacityType.SPOT)


@dataclass(frozen=True)
class Run(CloudRun):
    """The cluster, and the processes of its pods."""

    cluster: NewCluster
    pods: PodProcesses

    def alive(self) -> list[str]:
        """The pods that are there and have not ended, sorted."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.cluster.pods()
            if pod["status"]["phase"] not in ("Succeeded", "Failed")
        )

    def evict(self, name: str) -> None:
        """As Karpenter and `kubectl drain` do."""
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
        self.cluster.server.create(self.cluster.pod_path(name, "/eviction"), body)

    def log(self) -> str:
        return self.pods.log()


@pytest.fixture
def run(cluster: NewCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    cluster.proxy.reset()
    for zone in ZONES:
        for number in range(2):
            cluster.add(node(f"t4-{zone}-{number}", replace(POOL, zone=zone)))
    write_job(tmp_path / "job", "T4", STEPS)
    with served(FakeGcs(("runs",))) as storage:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
        environment = {"STORAGE_EMULATOR_HOST": storage}
        options = cluster.options(
            prices={f"{TYPE}/spot": 0.2}, env=environment, grace_s=60, standing_wait_s=30
        )
        account = {
            "kind": "account",
            "version": 1,
            "owner": "me",
            "store": "gs://runs/costopt",
            "providers": {"kubernetes": dict(options)},
        }
        (tmp_path / "account.yaml").write_text(yaml.safe_dump(account))
        pods = PodProcesses(cluster.server, tmp_path / "pods")
        yield Run(tmp_path, cluster, pods, environment=environment)
        pods.close()


def test_the_example_is_evicted_twice_and_resumes_exactly(run: Run) -> None:
    """Two pods of real training; each time one is evicted, both save, and training goes on.

    In the end the weights are those of an undisturbed run, bit by bit.
    """
    write_example(run.folder / "job", STEPS)
    run.hold.touch()
    evicted: list[str] = []
    with run.controlled() as process:
        for number in (1, 2):
            run.hold.write_text("")
            run.wait(
                lambda number=number: (
                    process.poll() is not None  # type: ignore[misc]
                    or (len(run.of(ev.TrainingStarted)) >= number and run.trains())
                ),
                f"training, begun {number} times",
            )
            assert process.poll() is None, process.communicate()[1] + run.log()
            evicted.append(run.alive()[0])
            run.evict(evicted[-1])
            run.wait(
                lambda number=number: len(run.of(ev.GangFormed)) > number,  # type: ignore[misc]
                f"gang {number + 1}",
            )
        run.hold.unlink()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    assert not run.alive()
    launched = [event.node_id for event in run.of(ev.NodeLaunched)]
    assert len(launched) == len(set(launched))
    assert {pod.pod["metadata"]["name"] for pod in run.pods.pods.values()} == set(launched)
    ended = {event.node_id: event.cause for event in run.of(ev.NodeEnded)}
    assert set(ended) == set(launched)
    assert {name for name in ended if ended[name] is EndCause.INTERRUPTED} == set(evicted)
    assert not run.of(ev.WorkLost)
    begun = [event.units for event in run.of(ev.TrainingStarted)]
    resumed = [units for units in begun[1:] if units is not None]
    assert len(begun) >= 3
    assert resumed == sorted(resumed)
    assert all(units > 0 for units in resumed)
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == STEPS
    weights = {path.read_text() for path in run.folder.glob("pods/*/volume/**/weights.sha256")}
    command = ["train.py", "--steps", str(STEPS), "--output", str(run.folder / "undisturbed")]
    subprocess.run(
        [sys.executable, *command],
        cwd=run.folder / "job",
        env=variables(),
        check=True,
        timeout=PATIENCE_S,
    )
    assert weights == {(run.folder / "undisturbed").read_text()}


def test_a_pod_that_cannot_start_says_why(run: Run) -> None:
    """Its last words are in the ledger, and it is not started again and again."""
    text = (run.folder / "account.yaml").read_text()
    broken = text.replace("STORAGE_EMULATOR_HOST: http", "STORAGE_EMULATOR_HOST: http://x-")
    assert broken != text
    (run.folder / "account.yaml").write_text(broken)
    with run.controlled() as process:
        run.wait(lambda: bool(run.of(ev.NodeEnded)) or process.poll() is not None, "end of a pod")
        assert process.poll() is None, process.communicate()
    first = run.of(ev.NodeEnded)[0]
    assert first.cause is EndCause.FAILED
    assert "costopt left with" in first.message
