"""A whole job on EC2 nodes that are processes here: interrupted, saved in S3, moved, finished."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from costopt.ledger.sqlite import open_ledger
from tests.aws import s3_trainer
from tests.aws.bodies import Bodies
from tests.aws.cloud import Cloud
from tests.live_run import no_traceback, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

TYPE = "g4dn.xlarge"
STEPS = 90
EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune"
PATIENCE_S = 120.0
JOB = """
kind: job
version: 1
name: tiny
work: {{amount: {steps}, unit: steps}}
deadline: 8h
resources: {{gpu_models: [T4]}}
throughput: {{points: [{{gpu: T4, gpus: 1, units_per_s: 0.05}}]}}
checkpoint: {{uri: saves, size_gib: 0.004, save: 10s, restore: 2m, interval: auto}}
startup: 3m
run: [sh, -c, "exec {python} train.py {steps} 0.1"]
"""
ACCOUNT = """
kind: account
version: 1
owner: me
store: s3://runs/costopt
providers:
  aws:
    regions: [us-east-1]
    instance_types: [{type}]
    scored_nodes: null
    image: {{us-east-1: {image}}}
    queues: {{us-east-1: "{queue}"}}
"""


POLICY = """
kind: policy
version: 1
name: eager
risk: {reserve: 10m}
strategy: greedy_spot
limits: {max_price_age: 1h, capacity_types: [spot, on_demand]}
"""


@dataclass(frozen=True)
class Run:
    """``costopt run`` in a folder of its own, on the test cloud."""

    folder: Path
    cloud: Cloud
    bodies: Bodies

    @contextmanager
    def controlled(self) -> Iterator[subprocess.Popen[str]]:
        """The command as a user starts it, killed at the end."""
        command = [sys.executable, "-m", "costopt", "run", "job/job.yaml", "--account"]
        command += [
            "account.yaml",
            "--policy",
            "policy.yaml",
            "--state-dir",
            "state",
            "--tick",
            "1",
            "--apply",
        ]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**_without_costopt(), **self.cloud.environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def of(self, kind: type[Any]) -> list[Any]:
        """The job's events of one kind."""
        path = self.folder / "state" / "ledger.sqlite"
        if not path.exists():
            return []
        with open_ledger(path, create=False) as ledger:
            return [r.event for r in ledger.events() if isinstance(r.event, kind)]

    def printed(self, node_id: str) -> str:
        """What ``costopt logs`` tells of a node, from the store alone."""
        command = [sys.executable, "-m", "costopt", "logs", "finetune", "--node", node_id]
        command += ["--account", "account.yaml", "--state-dir", "state"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**_without_costopt(), **self.cloud.environment()},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def saves(self) -> list[str]:
        """The checkpoints of the trainer without torch that lie in the bucket."""
        under = "costopt/checkpoints/tiny/step-"
        listed = self.cloud.client("s3").list_objects_v2(Bucket="runs", Prefix=under)
        return sorted(item["Key"].removeprefix(under) for item in listed.get("Contents", ()))

    def log(self) -> str:
        """What the nodes had to say."""
        logs = sorted(self.folder.glob("disks/*/boot.log"))
        logs += sorted(self.folder.glob("disks/*/units/*.log"))
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Poll; what the nodes said when time is up."""
        try:
            wait_until(holds, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None


def _without_costopt() -> dict[str, str]:
    import os

    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root}:{root / 'providers'}", "NO_COLOR": "1"}


@pytest.fixture
def run(cloud: Cloud, tmp_path: Path) -> Iterator[Run]:
    cloud.client("s3").create_bucket(Bucket="runs")
    image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")["ImageId"]
    for zone, usd in (("us-east-1a", 0.2), ("us-east-1b", 0.25)):
        cloud.spot.price(zone, TYPE, usd)
    cloud.listed.list("us-east-1", TYPE, 0.526, bucket=0)
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.yaml").write_text(JOB.format(steps=STEPS, python=sys.executable))
    shutil.copy(s3_trainer.__file__, job / "train.py")
    (tmp_path / "policy.yaml").write_text(POLICY)
    account = ACCOUNT.format(type=TYPE, image=image, queue=cloud.queue())
    (tmp_path / "account.yaml").write_text(account)
    bodies = Bodies(cloud, tmp_path / "disks")
    yield Run(tmp_path, cloud, bodies)
    bodies.close()


def test_the_example_trains_on_through_the_loss_of_a_node(run: Run) -> None:
    """Two nodes of real training: the gang saves to S3 on the notice, both move, none is lost."""
    job = run.folder / "job"
    shutil.rmtree(job)
    shutil.copytree(EXAMPLE, job, ignore=shutil.ignore_patterns("output", "__pycache__"))
    text = (job / "job.yaml").read_text()
    (job / "job.yaml").write_text(text.replace("amount: 1500", "amount: 60").replace("1500", "60"))
    with run.controlled() as process:
        run.wait(lambda: bool(run.of(ev.TrainingStarted)) or process.poll() is not None, "training")
        assert process.poll() is None, process.communicate()
        first = run.cloud.alive()
        run.cloud.interrupt(first[0])
        run.wait(lambda: len(run.of(ev.GangFormed)) == 2, "second gang")
        assert first[0] in run.cloud.alive(), "in its first hour it is left to EC2"
        run.cloud.strike(first[0])
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    _ledger_is_what_ran(run)
    assert len({node.pool for node in run.of(ev.NodeLaunched)}) == 2
    assert len(run.of(ev.NodeLaunched)) == 4
    ended = {event.node_id: event.cause for event in run.of(ev.NodeEnded)}
    assert [i for i in ended if ended[i] is EndCause.INTERRUPTED] == [first[0]]
    assert not run.of(ev.WorkLost)
    assert run.of(ev.TrainingStarted)[1].units > 0
    (finished,) = run.of(ev.JobFinished)
    assert finished.units == 60
    printed = {event.node_id: run.printed(event.node_id) for event in run.of(ev.NodeLaunched)}
    assert any("step " in printed[node_id] for node_id in first)
    assert any("the result is exact" in text for text in printed.values())


def test_a_controller_that_is_killed_finds_its_nodes(run: Run) -> None:
    with run.controlled() as process:
        run.wait(lambda: bool(run.saves()) or process.poll() is not None, "first save")
        assert process.poll() is None, process.communicate()
        process.kill()
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert len(run.of(ev.NodeLaunched)) == 1
    assert run.saves()[-1] == f"{STEPS:06d}"
    _ledger_is_what_ran(run)


def _ledger_is_what_ran(run: Run) -> None:
    from tests.aws.overlay.instances import backend

    reservations = backend("us-east-1").reservations.values()
    ran = {instance.id for r in reservations for instance in r.instances}
    assert not run.cloud.alive()
    assert {event.node_id for event in run.of(ev.NodeLaunched)} == ran
    assert {event.node_id for event in run.of(ev.NodeEnded)} == ran
