"""The complete example, applied and destroyed: EC2, PostgreSQL, two regions, jobs from files.

A program, for its minutes are spent waiting, and other tests run meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.spec import load_account
from tests.support.aws.cloud import served_cloud
from tests.support.terraform.bucket_policies import BucketPolicies
from tests.support.terraform.file_backups import FileBackups
from tests.support.terraform.workspace import ROOT, Workspace

PLACE = "examples/aws-complete"
WEST = """
provider "aws" {
  alias                   = "west"
  max_retries             = 2
  skip_metadata_api_check = true
}
"""


@dataclass(frozen=True)
class Started:
    """A process, and where it says what goes wrong."""

    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def started(folder: Path) -> Iterator[Started]:
    """``come_and_go`` in a process of its own, begun and not waited for."""
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, folder],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )
    try:
        yield Started(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def come_and_go(folder: Path) -> None:
    """Raises AssertionError where it does not."""
    with served_cloud() as cloud:
        cloud.reset()
        cloud.overlay.add(FileBackups())
        cloud.overlay.add(BucketPolicies())
        image = cloud.client("ec2").register_image(Name="linux", RootDeviceName="/dev/xvda")
        workspace = Workspace.copy(folder / "copy", **cloud.environment())
        workspace.override(PLACE)
        override = workspace.folder / PLACE / "provider_override.tf"
        override.write_text(override.read_text() + WEST)
        variables = {
            "image": "costopt:0.1.0",
            "instance_image_id": image["ImageId"],
            "force_destroy": True,
        }
        values = workspace.folder / PLACE / "test.auto.tfvars.json"
        values.write_text(json.dumps(variables))
        workspace.init(PLACE)
        workspace.run(PLACE, "apply", "-auto-approve", "-parallelism=30")
        reported = workspace.outputs(PLACE)["costopt"]
        (folder / "account.yaml").write_text(reported["account_document"])
        account = load_account(str(folder / "account.yaml"))
        assert account.owner == "research"
        assert set(reported["job_role_arns"]) == {"finetune"}
        assert account.guards.max_usd_per_month == 2000
        options: Any = account.providers["aws"]
        assert options["regions"] == ["us-east-1", "us-west-2"]
        assert set(options["queues"]) == {"us-east-1", "us-west-2"}
        assert reported["command"][-1] == reported["database_url"]
        groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        assert [group["DesiredCapacity"] for group in groups] == [1]
        listed = cloud.client("s3").list_objects_v2(Bucket=reported["bucket"], Prefix="deployed/")
        keys = {each["Key"] for each in listed["Contents"]}
        job = cloud.client("s3").get_object(
            Bucket=reported["bucket"], Key="deployed/finetune/job.json"
        )
        files = json.loads(job["Body"].read())["files"]
        assert f"deployed/finetune/{files['train.py']}" in keys
        workspace.run(PLACE, "destroy", "-auto-approve", "-refresh=false", "-parallelism=30")
        assert workspace.resources(PLACE) == []


if __name__ == "__main__":
    come_and_go(Path(sys.argv[1]))
