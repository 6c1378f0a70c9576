"""A whole job on EC2 nodes that are processes here: interrupted, saved in S3, moved, finished."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.support.aws.cloud import Cloud
from tests.support.aws.instance_processes import Bodies
from tests.support.aws.overlay.faults import page_after
from tests.support.cloud_run import CloudRun, write_example, write_job
from tests.support.live_run import PATIENCE_S, no_traceback

pytestmark = [
    pytest.mark.exhaustive("jobs on clouds"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

TYPE = "g4dn.xlarge"
STEPS = 90
EXAMPLE_STEPS = 60
VALUE = "correct-horse-battery"
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


@dataclass(frozen=True)
class Run(CloudRun):
    """The test cloud and the bodies of its nodes."""

    cloud: Cloud
    bodies: Bodies

    def saves(self) -> list[str]:
        """The checkpoints of the trainer without torch that lie in the bucket."""
        under = "costopt/checkpoints/tiny/step-"
        listed = self.cloud.client("s3").list_objects_v2(Bucket="runs", Prefix=under)
        return sorted(item["Key"].removeprefix(under) for item in listed.get("Contents", ()))


@pytest.fixture
def run(cloud: Cloud, tmp_path: Path) -> Iterator[Run]:
    cloud.client("s3").create_bucket(Bucket="runs")
    cloud.client("iam").create_instance_profile(InstanceProfileName="costopt-node")
    image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")["ImageId"]
    for zone, usd in (("us-east-1a", 0.2), ("us-east-1b", 0.25)):
        cloud.spot.price(zone, TYPE, usd)
    cloud.listed.list("us-east-1", TYPE, 0.526, bucket=0)
    write_job(tmp_path / "job", "T4", STEPS)
    account = ACCOUNT.format(type=TYPE, image=image, queue=cloud.queue())
    (tmp_path / "account.yaml").write_text(account)
    bodies = Bodies(cloud, tmp_path / "disks")
    yield Run(tmp_path, cloud, bodies, environment=cloud.environment())
    bodies.close()


def test_the_example_trains_on_through_the_loss_of_a_node(run: Run) -> None:
    """Two nodes of real training: the gang saves to S3 on the notice, both move, none is lost."""
    write_example(run.folder / "job", EXAMPLE_STEPS)
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: run.trains() or process.poll() is not None, "step of the training")
        assert process.poll() is None, process.communicate()
        first = run.cloud.alive()
        run.cloud.interrupt(first[0])
        run.wait(lambda: bool(run.of(ev.CheckpointCommitted)), "save on the notice")
        run.wait(lambda: len(run.of(ev.GangFormed)) >= 2, "second gang")
        run.hold.unlink()
        assert first[0] in run.cloud.alive(), "in its first hour it is left to EC2"
        run.cloud.reclaim(first[0])
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
    assert finished.units == EXAMPLE_STEPS
    nodes = [event.node_id for event in run.of(ev.NodeLaunched)]
    printed = {node_id: run.printed("finetune", node_id) for node_id in nodes}
    assert any("step " in printed[node_id] for node_id in first)
    assert any("the result is exact" in text for text in printed.values()), printed


def test_a_controller_that_is_killed_finds_its_nodes(run: Run) -> None:
    """They read the job's secret with their role; its value is nowhere but with its command."""
    run.cloud.client("secretsmanager").create_secret(Name="prod/token", SecretString=VALUE)
    job = run.folder / "job" / "job.yaml"
    job.write_text(
        f"{job.read_text()}\nsecrets: {{TOKEN: {{aws: prod/token}}}}\n"
        "setup: ['echo setup has $TOKEN; test ${#TOKEN} = 21']\n"
    )
    run.hold.touch()
    with run.controlled() as process:
        run.wait(lambda: bool(run.saves()) or process.poll() is not None, "first save")
        assert process.poll() is None, process.communicate()
        process.kill()
    run.hold.unlink()
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert len(run.of(ev.NodeLaunched)) == 1
    assert run.saves()[-1] == f"{STEPS:06d}"
    _ledger_is_what_ran(run)
    (node,) = (event.node_id for event in run.of(ev.NodeLaunched))
    assert "\nsetup has ***\n" in run.printed("tiny", node)
    files = [path for path in run.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if VALUE.encode() in path.read_bytes()]
    s3 = run.cloud.client("s3")
    for item in s3.list_objects_v2(Bucket="runs")["Contents"]:
        stored = s3.get_object(Bucket="runs", Key=item["Key"])["Body"].read()
        assert VALUE.encode() not in stored, item["Key"]


def test_a_proxy_that_answers_for_ec2_costs_nothing_but_time(run: Run) -> None:
    """Every kind of call that changes or lists nodes is answered with a page, twice each."""
    for call in ("DescribeInstances", "RunInstances", "TerminateInstances"):
        run.cloud.faults.on("ec2", call, page_after, times=2)
    with run.controlled() as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + run.log()
    assert no_traceback(said)
    assert len(run.of(ev.NodeLaunched)) == 1
    _ledger_is_what_ran(run)


def _ledger_is_what_ran(run: Run) -> None:
    from tests.support.aws.overlay.instances import backend

    reservations = backend("us-east-1").reservations.values()
    ran = {instance.id for r in reservations for instance in r.instances}
    assert not run.cloud.alive()
    assert {event.node_id for event in run.of(ev.NodeLaunched)} == ran
    assert {event.node_id for event in run.of(ev.NodeEnded)} == ran
