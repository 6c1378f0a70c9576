"""The complete example, applied and destroyed: EC2, PostgreSQL, two regions, jobs from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costopt.spec import load_account
from tests.support.aws.cloud import served_cloud
from tests.support.terraform.bucket_policies import BucketPolicies
from tests.support.terraform.file_backups import FileBackups
from tests.support.terraform.workspace import Workspace, missing

pytestmark = [
    pytest.mark.exhaustive("what Terraform deploys"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
PLACE = "examples/aws-complete"
WEST = """
provider "aws" {
  alias                   = "west"
  max_retries             = 2
  skip_metadata_api_check = true
}
"""


def test_the_complete_example_comes_and_goes(tmp_path: Path) -> None:
    with served_cloud() as cloud:
        cloud.reset()
        cloud.overlay.add(FileBackups())
        cloud.overlay.add(BucketPolicies())
        image = cloud.client("ec2").register_image(Name="linux", RootDeviceName="/dev/xvda")
        workspace = Workspace.copy(tmp_path / "copy", **cloud.environment())
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
        (tmp_path / "account.yaml").write_text(reported["account_document"])
        account = load_account(str(tmp_path / "account.yaml"))
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
