"""examples/slurm: a partition that is preempted twice, then the cloud in time; the same weights."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.support.cloud_run import CloudRun, write_example
from tests.support.live_run import PATIENCE_S, no_traceback
from tests.support.node_folder import ROOT, processes_under, variables
from tests.support.slurm.cluster import Partition, SlurmCluster, slurm_cluster
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [
    pytest.mark.exhaustive("jobs on Slurm"),
    pytest.mark.slurm,
    pytest.mark.process,
    pytest.mark.slow,
]

EXAMPLE = ROOT / "examples" / "slurm"
STEPS = 20
HOURS_THAT_OTHERS_TAKE = 13.55
"""Of the deadline's 14."""


class CampusRun(CloudRun):
    """The example's job, started as its README says."""

    @contextmanager
    def controlled(self) -> Iterator[subprocess.Popen[str]]:
        """The run, killed at the end with the cloud's nodes."""
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "campus.py"), "job/job.yaml", "account.yaml", "state"],
            cwd=self.folder,
            env=variables(**self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
            for pid in processes_under(self.folder):
                subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)

    def log(self) -> str:
        logs = sorted(self.folder.glob("shared/launches/*.log"))
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs)

    def ended(self) -> int:
        """How many nodes have been taken."""
        ends = self.of(ev.NodeEnded)
        return sum(end.cause is EndCause.INTERRUPTED for end in ends)


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    partitions = (
        Partition("high", tier=10),
        Partition("spot", preempted=True, grace_s=30, more="MaxTime=1-00:00:00"),
    )
    with slurm_cluster(nodes=4, gpus=1, partitions=partitions) as cluster:
        yield cluster


def write(folder: Path) -> None:
    """The example, with the folders of this machine for the site's names."""
    write_example(folder / "job", STEPS)
    shutil.copy(EXAMPLE / "policy.yaml", folder)
    text = (EXAMPLE / "account.yaml").read_text()
    for name, value in {
        "store: STORE": f"store: {folder / 'store'}",
        "FOLDER": folder / "shared",
        "PYTHON ": f"{sys.executable} ",
        "MODULES": f"{ROOT}:{ROOT / 'providers'}",
    }.items():
        text = text.replace(name, str(value))
    (folder / "account.yaml").write_text(text)


@contextmanager
def start_undisturbed(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The same training in one process, while the other one waits for Slurm."""
    write_example(folder / "undisturbed", STEPS)
    command = ["train.py", "--steps", str(STEPS), "--output", str(folder / "whole")]
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder / "undisturbed", env=variables()
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_finetune_job_leaves_a_preempted_partition_in_time(
    tmp_path: Path, slurm: SlurmCluster
) -> None:
    write(tmp_path)
    run = CampusRun(tmp_path, environment=slurm.environment)
    run.hold.touch()
    with ExitStack() as stack, run.controlled() as process:
        run.wait(lambda: run.trains() or process.poll() is not None, "training")
        assert process.poll() is None, process.communicate()
        others = slurm.preempt(4)
        undisturbed = stack.enter_context(start_undisturbed(tmp_path))
        slurm.await_state(others, "RUNNING", seconds=PATIENCE_S)
        run.wait(lambda: run.ended() >= 2, "end of the first gang")
        slurm.run("scancel", str(others))
        run.wait(lambda: len(run.of(ev.TrainingStarted)) >= 2, "training on the second gang")
        slurm.await_state(slurm.preempt(4), "RUNNING", seconds=PATIENCE_S)
        run.wait(lambda: run.ended() >= 4, "end of the second gang")
        (tmp_path / "skipped").write_text(str(HOURS_THAT_OTHERS_TAKE))
        run.hold.unlink()
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said + run.log()
        assert undisturbed.wait(PATIENCE_S) == 0
    assert no_traceback(said)
    launched = run.of(ev.NodeLaunched)
    on_campus = [node.pool.startswith("slurm/campus/spot/") for node in launched]
    prices = [node.micros_per_hour for node in launched]
    assert [price == 0 for price in prices] == on_campus
    assert sum(on_campus) >= 4
    assert on_campus == [True] * (len(on_campus) - 2) + [False] * 2
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == STEPS
    assert finished.at <= run.of(ev.JobSubmitted)[0].deadline_at
    weights = tmp_path / "job" / "output" / "weights.sha256"
    assert weights.read_text() == (tmp_path / "whole").read_text()
