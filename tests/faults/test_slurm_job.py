"""A whole job on a real Slurm cluster: preempted by others' jobs, saved, finished."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.support.cloud_run import CloudRun, write_job
from tests.support.live_run import PATIENCE_S, no_traceback
from tests.support.node_folder import ROOT
from tests.support.slurm.cluster import Partition, SlurmCluster, slurm_cluster
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [
    pytest.mark.exhaustive("jobs on Slurm"),
    pytest.mark.slurm,
    pytest.mark.process,
    pytest.mark.slow,
]

STEPS = 60
ACCOUNT = """
kind: account
version: 1
owner: me
store: {store}
providers:
  slurm:
    cluster: campus
    node_types: {{h100: {{gpu: H100, gpus: 1, vcpus: 8, memory_gib: 31}}}}
    partitions: {{spot: {{usd_per_gpu_hour: 0.5}}, scavenge: {{usd_per_gpu_hour: 0.75}}}}
    folder: {folder}
    python: {python}
    setup: |
      export PYTHONPATH={path}
"""


@dataclass(frozen=True)
class Run(CloudRun):
    """The cluster, and what its nodes said."""

    slurm: SlurmCluster

    def saves(self) -> list[Path]:
        """The checkpoints in the shared store."""
        return sorted(self.folder.glob("store/checkpoints/tiny/step-*"))

    def log(self) -> str:
        logs = sorted(self.folder.glob("shared/launches/*.log"))
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs)

    def jobs(self) -> list[int]:
        """The batch jobs of ours that run."""
        found = self.slurm.run("squeue", "-h", "-t", "R", "-p", "spot,scavenge", "-o", "%i")
        return [int(each) for each in found.split()]

    def held_s(self) -> float:
        """For how long Slurm held nodes for the job by its own accounts, in node-seconds."""
        text = self.slurm.run(
            "sacct", "-c", "-n", "-P", "-o", "JobName,NNodes,Start,End",
            environment={"SLURM_TIME_FORMAT": "%s"},
        )  # fmt: skip
        rows = (line.split("|") for line in text.splitlines())
        return sum(
            int(nodes) * (_epoch(end) - _epoch(start))
            for name, nodes, start, end in rows
            if name.startswith("costopt-")
        )


def _epoch(text: str) -> float:
    """jobcomp/filetxt keeps local times, whatever format is asked for."""
    return float(text) if text.isdigit() else datetime.fromisoformat(text).timestamp()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    skip_without_slurm()
    write_job(tmp_path / "job", "H100", STEPS)
    account = ACCOUNT.format(
        store=tmp_path / "store",
        folder=tmp_path / "shared",
        python=sys.executable,
        path=f"{ROOT}:{ROOT / 'providers'}",
    )
    (tmp_path / "account.yaml").write_text(account)
    limit = "MaxTime=1-00:00:00"
    partitions = (
        Partition("high", tier=10, nodes="n[1-2]"),
        Partition("spot", preempted=True, grace_s=30, nodes="n[1-2]", more=limit),
        Partition("scavenge", preempted=True, grace_s=30, nodes="n3", more=limit),
    )
    with slurm_cluster(nodes=3, gpus=1, partitions=partitions) as cluster:
        yield Run(tmp_path, cluster, environment=cluster.environment)


def test_a_job_finishes_through_a_preemption_and_a_killed_controller(run: Run) -> None:
    """The agent saves on Slurm's SIGTERM; another controller goes on from there.

    No work is lost, though the first controller may not have heard of that save, and this trainer
    does not say where it resumed.
    """
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: bool(run.saves()) or process.poll() is not None, "first save")
        assert process.poll() is None, process.communicate()
        (first,) = run.jobs()
        run.slurm.preempt(2)
        run.wait(lambda: len({e.node_id for e in run.of(ev.NodeLaunched)}) >= 2, "second node")
        process.kill()
    run.hold.unlink()
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    ended = {event.node_id: event.cause for event in run.of(ev.NodeEnded)}
    assert set(ended.values()) == {EndCause.INTERRUPTED, EndCause.RELEASED}
    assert ended[f"{first}-0"] is EndCause.INTERRUPTED
    assert not run.jobs()
    assert not run.of(ev.WorkLost)
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == STEPS
    ran = {e.node_id: e.launched_at for e in run.of(ev.NodeLaunched) if not e.waiting}
    billed_s = sum((e.ended_at - ran[e.node_id]).total_seconds() for e in run.of(ev.NodeEnded))
    assert billed_s == run.held_s()
