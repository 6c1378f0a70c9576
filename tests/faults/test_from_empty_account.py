"""From an empty AWS account and a train.py to a finished job: the commands of two pages."""

from __future__ import annotations

import re
import shlex
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
COMMAND = re.compile(r"^\$ costopt ((?:.*\\\n)*.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Newcomer(CloudRun):
    """A folder with a train.py, and an account in which there is nothing of costopt."""

    cloud: Cloud

    def costopt(self, line: str) -> str:
        """Run a command as a user types it; return what it printed."""
        words = shlex.split(line.partition(" > ")[0])
        ticks = ["--tick", "1"] if words[0] == "run" else []
        environment = variables(**self.environment)
        command = ["-m", "costopt", *words, *ticks]
        done = forked_commands.run(command, self.folder, environment, PATIENCE_S)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.log()}"
        return done.stdout


@pytest.fixture
def newcomer(cloud: Cloud, tmp_path: Path, example: str) -> Iterator[Newcomer]:
    empty_account(cloud)
    image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")
    cloud.client("ssm").put_parameter(Name="/deep", Value=image["ImageId"], Type="String")
    # Amazon's own parameters, which nobody else may write.
    parameters = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]._parameters
    parameters[DEEP_LEARNING] = parameters["/deep"]
    cloud.spot.price("us-east-1a", TYPE, 0.2)
    cloud.listed.list(REGION, TYPE, 0.526, bucket=0)
    folder = tmp_path / example
    folder.mkdir()
    bodies = Bodies(cloud, folder / "disks")
    environment = {
        **cloud.environment(),
        "AWS_REGION": REGION,
        "COSTOPT_STATE_DIR": str(folder / "state"),
    }
    yield Newcomer(folder, cloud=cloud, environment=environment)
    bodies.close()


@pytest.mark.parametrize(
    ("example", "page"), [("hugging_face", "hugging-face.md"), ("torchrun", "torchrun.md")]
)
def test_the_commands_of_a_page(newcomer: Newcomer, example: str, page: str) -> None:
    source, folder = ROOT / "examples" / example, newcomer.folder
    for name in ("train.py", "requirements.txt"):
        shutil.copy(source / name, folder)
    text = (ROOT / "docs" / page).read_text("utf-8")
    commands = [command.replace("\\\n", "") for command in COMMAND.findall(text)]
    assert [line.split()[0] for line in commands[:3]] == ["init", "setup", "run"]
    commands.insert(3, "checkpoints list job.yaml")
    printed = {line.partition(" --")[0]: newcomer.costopt(line) for line in commands}
    written = (folder / "job.yaml").read_text()
    assert written == (source / "job.yaml").read_text()
    assert written in text
    assert len(newcomer.of(ev.JobFinished)) == 1
    assert not newcomer.cloud.alive()
    assert "Requirement already satisfied" in printed[f"logs {example}"]
    assert "<html" in printed[f"report {example} -o html > report.html"]
    for said in (example, "job.yaml"):
        assert "step-" in printed[f"checkpoints list {said}"]
    if example == "hugging_face":
        assert list((folder / "weights").glob("*.safetensors"))
