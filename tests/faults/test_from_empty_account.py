"""From an empty AWS account and a train.py to a finished job with its report, as the pages say."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ssm.models import ssm_backends

from costopt.domain import events as ev
from costopt_aws.images import DEEP_LEARNING
from tests.support import forked_commands
from tests.support.aws.cloud import Cloud
from tests.support.aws.instance_processes import Bodies
from tests.support.aws.setup_cloud import REGION, empty_account
from tests.support.cloud_run import CloudRun
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import ROOT, variables

pytestmark = [
    pytest.mark.exhaustive("jobs on clouds"),
    pytest.mark.worker_group("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

TYPE = "g4dn.xlarge"


@dataclass(frozen=True)
class Newcomer(CloudRun):
    """A folder with a train.py, and an account in which there is nothing of costopt."""

    cloud: Cloud

    def costopt(self, *words: str) -> str:
        """Run a command as a user types it; return what it printed."""
        environment = variables(**self.environment)
        command = ["-m", "costopt", *words]
        done = forked_commands.run(command, self.folder, environment, PATIENCE_S)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.log()}"
        return done.stdout


@pytest.fixture
def newcomer(cloud: Cloud, tmp_path: Path) -> Iterator[Newcomer]:
    empty_account(cloud)
    image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")
    cloud.client("ssm").put_parameter(Name="/deep", Value=image["ImageId"], Type="String")
    # Amazon's own parameters, which nobody else may write.
    parameters = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]._parameters
    parameters[DEEP_LEARNING] = parameters["/deep"]
    cloud.spot.price("us-east-1a", TYPE, 0.2)
    cloud.listed.list(REGION, TYPE, 0.526, bucket=0)
    bodies = Bodies(cloud, tmp_path / "disks")
    environment = {**cloud.environment(), "AWS_REGION": REGION}
    yield Newcomer(tmp_path, cloud=cloud, environment=environment)
    bodies.close()


@pytest.mark.parametrize("example", ["hugging_face", "torchrun"])
def test_three_commands_and_a_report(newcomer: Newcomer, example: str) -> None:
    """The job file that init writes is the example's."""
    source, folder = ROOT / "examples" / example, newcomer.folder / example
    folder.mkdir()
    for name in ("train.py", "requirements.txt"):
        shutil.copy(source / name, folder)
    answers = INIT[example]
    newcomer.costopt("init", example, *answers)
    assert (folder / "job.yaml").read_text() == (source / "job.yaml").read_text()
    newcomer.costopt("setup", "aws", "--apply")
    account, state = ("--account", "account.yaml"), ("--state-dir", "state")
    job = f"{example}/job.yaml"
    newcomer.costopt("run", job, *account, *state, "--tick", "1", "--apply")
    assert len(newcomer.of(ev.JobFinished)) == 1
    assert not newcomer.cloud.alive()
    report = newcomer.costopt("report", example, *state, "-o", "html")
    assert "<html" in report
    assert "Requirement already satisfied" in newcomer.costopt("logs", example, *account, *state)
    listed = newcomer.costopt("checkpoints", "list", example, *state, "-o", "json")
    assert json.loads(listed)["rows"]


INIT = {
    "hugging_face": (
        "--command", "torchrun train.py --epochs 2",
        "--work", "20 steps", "--takes", "1m per step on 1xT4", "--due", "8h",
    ),
    "torchrun": (
        "--command", "torchrun train.py --steps 200",
        "--work", "200 steps", "--takes", "5s per step on 1xT4", "--due", "8h",
    ),
}  # fmt: skip
"""How the pages call init."""
