"""From an empty account to a job's report and out again, on nodes that are processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.aws.cloud import Cloud
from tests.support.aws.instance_processes import Bodies
from tests.support.aws.setup_cloud import REGION, digest, empty_account
from tests.support.cloud_run import write_job
from tests.support.command_line import invoke
from tests.support.forked_commands import ForkedCommand
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import variables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

TYPE = "g4dn.xlarge"


@pytest.fixture
def account(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", REGION)
    cloud.spot.price("us-east-1a", TYPE, 0.2)
    cloud.listed.list(REGION, TYPE, 0.526, bucket=0)
    write_job(tmp_path / "job", "T4", 30)
    bodies = Bodies(cloud, tmp_path / "disks")
    yield empty_account(cloud)
    bodies.close()


def done(*words: str) -> str:
    ended = invoke(*words)
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_three_commands_and_out_again(account: Cloud, tmp_path: Path) -> None:
    image = account.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")["ImageId"]
    before = digest(account)
    done("setup", "aws", "--apply")
    file = tmp_path / "account.yaml"
    written = file.read_text()
    # The test cloud knows none of Amazon's images, and few types.
    document = yaml.safe_load(written)
    only = {"image": {REGION: image}, "instance_types": [TYPE], "scored_nodes": None}
    document["providers"]["aws"].update(only)
    file.write_text(yaml.safe_dump(document))
    words = ["run", "job/job.yaml", "--policy", "job/policy.yaml", "--tick", "1", "--apply"]
    environment = variables(**account.environment())
    process = ForkedCommand(["-m", "costopt", *words], tmp_path, environment)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "<html" in done("report", "tiny", "-o", "html")
    done("stop", "--all")
    refused = invoke("setup", "aws", "--remove", "--apply")
    assert refused.exit_code == 1
    file.write_text(written)
    done("setup", "aws", "--remove", "--apply", "--delete-checkpoints")
    assert digest(account) == before
    assert not file.exists()
