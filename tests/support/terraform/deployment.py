"""The minimal example in a test cloud, and the containers that it describes as processes here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.aws.cloud import KEYS, Cloud, served_cloud
from tests.support.cloud_run import write_job
from tests.support.terraform.bucket_policies import BucketPolicies
from tests.support.terraform.file_backups import FileBackups
from tests.support.terraform.workspace import Workspace

EXAMPLE = "examples/aws-minimal"
MOUNTS = ("/run/costopt", "/var/lib/costopt")
TYPE = "g4dn.xlarge"
STEPS = 200
MODULE = """
  instance_types   = ["{type}"]
  node_image_ids   = {{ us-east-1 = "{image}" }}
  placement_scores = false
  tick_s           = 1

  node_secrets      = ["prod/shared"]
  node_repositories = ["train"]
  jobs = {{
    tiny = {{
      document = file("{job}/job.yaml")
      policy   = file("{job}/policy.yaml")
      folder   = "{job}"
    }}
  }}
"""


@dataclass
class Deployment:
    """``folder`` stands for what ECS mounts."""

    cloud: Cloud
    workspace: Workspace
    folder: Path
    place: str = EXAMPLE

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """What the module tells."""
        reported: dict[str, Any] = self.workspace.outputs(self.place)["costopt"]
        return reported

    def containers(self) -> dict[str, dict[str, Any]]:
        """As ECS was reported, by name."""
        ecs = self.cloud.client("ecs")
        (service,) = ecs.describe_services(cluster="costopt", services=["daemon"])["services"]
        task = ecs.describe_task_definition(taskDefinition=service["taskDefinition"])
        return {each["name"]: each for each in task["taskDefinition"]["containerDefinitions"]}

    def environment(self, name: str) -> dict[str, str]:
        """Of a container, with this deployment's folders in place of its mount points."""
        container = self.containers()[name]
        return {each["name"]: self._here(each["value"]) for each in container["environment"]}

    @contextmanager
    def started(
        self, name: str, role: Mapping[str, str], *more: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A container's command with its environment, the ECS agent's and the image's, no more."""
        container = self.containers()[name]
        command = [self._here(word) for word in (*container["entryPoint"], *container["command"])]
        image = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [*command, *more],
                env={**image, **role, **self.environment(name)},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def log(self, name: str) -> Path:
        """What a container said when it was last started."""
        return self.folder / f"{name}.log"

    def launched(self, ec2: Any, **more: Any) -> str:
        """The id of an instance that this client of EC2 launches."""
        (image,) = self.cloud.client("ec2").describe_images(Owners=["self"])["Images"]
        asked = {"ImageId": image["ImageId"], "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1}
        (instance,) = ec2.run_instances(**asked, **more)["Instances"]
        return str(instance["InstanceId"])

    def profiles(self) -> list[str]:
        """The instance profiles of the launch templates that there are."""
        ec2 = self.cloud.client("ec2")
        names = [
            t["LaunchTemplateName"] for t in ec2.describe_launch_templates()["LaunchTemplates"]
        ]
        reported = (
            ec2.describe_launch_template_versions(LaunchTemplateName=name) for name in names
        )
        data = (each["LaunchTemplateVersions"][0]["LaunchTemplateData"] for each in reported)
        return [each["IamInstanceProfile"]["Name"] for each in data]

    def costopt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command in the daemon's container, as ECS Exec runs it."""
        image = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(
            ["costopt", *arguments],
            env={**image, **self.environment("daemon")},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def _here(self, text: str) -> str:
        for mount in MOUNTS:
            text = text.replace(mount, f"{self.folder}{mount}")
        return text


def prepared(cloud: Cloud, workspace: Workspace, folder: Path, module: str) -> Deployment:
    """The example with ``module`` as further arguments of the module, not yet applied."""
    for mount in MOUNTS:
        Path(f"{folder}{mount}").mkdir(parents=True)
    workspace.override(EXAMPLE)
    given = {k: v for k, v in cloud.environment().items() if k not in KEYS or "KEY" not in k}
    given.pop("XDG_CACHE_HOME")
    place = workspace.folder / EXAMPLE
    (place / "module_override.tf").write_text(f'module "costopt" {{\n{module}\n}}\n')
    variables = {"image": "costopt:0.1.0", "environment": given}
    (place / "test.auto.tfvars.json").write_text(json.dumps(variables))
    return Deployment(cloud, workspace, folder)


@contextmanager
def applied(copy: Path) -> Iterator[Deployment]:
    """The example with one job, applied in a cloud of its own; Terraform runs in ``copy``."""
    short = Path(tempfile.mkdtemp(prefix="costopt-"))  # a socket's path must be short
    job = short / "job"
    write_job(job, "T4", STEPS, pace_s=0.05)
    with served_cloud() as cloud:
        cloud.reset()
        cloud.overlay.add(FileBackups())
        cloud.overlay.add(BucketPolicies())
        image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")
        for zone, usd in (("us-east-1a", 0.2), ("us-east-1b", 0.25)):
            cloud.spot.price(zone, TYPE, usd)
        cloud.listed.list("us-east-1", TYPE, 0.526, bucket=0)
        workspace = Workspace.copy(copy, **cloud.environment())
        module = MODULE.format(type=TYPE, image=image["ImageId"], job=job)
        deployment = prepared(cloud, workspace, short, module)
        workspace.init(deployment.place)
        workspace.run(deployment.place, "apply", "-auto-approve", "-parallelism=30")
        yield deployment
    shutil.rmtree(short)
