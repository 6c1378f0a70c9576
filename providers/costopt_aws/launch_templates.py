"""Launch templates: what all launches of a job have in common, stored by EC2."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from threading import Lock
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt_aws.bootstrap import NodeSetup
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instances import make_tags

EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
MAX_USER_DATA_BYTES = 16 * 1024
"""EC2's limit on user data before base64 (EC2 User Guide, "Run commands when you launch")."""

_UNFIT = re.compile(r"[^a-zA-Z0-9().\-/_]")


class LaunchTemplates:
    """A template's name holds a digest of its content, so creating one again changes nothing."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._made: set[tuple[str, str]] = set()
        self._lock = Lock()

    def ensure(self, request: LaunchRequest, setup: NodeSetup) -> str:
        """Return the name of the template for these nodes, created if missing.

        Raise ProviderError.
        """
        content = _content(setup)
        region, name = request.pool.region, _name(request, content)
        with self._lock:
            if (region, name) not in self._made:
                self._make(request, name, content)
                self._made.add((region, name))
        return name

    def forget(self, region: str, name: str) -> None:
        """Forget that the template exists, so that the next launch checks for it."""
        with self._lock:
            self._made.discard((region, name))

    def _make(self, request: LaunchRequest, name: str, content: dict[str, Any]) -> None:
        region = request.pool.region
        owned = make_tags(owner=request.owner, job=request.job)
        client = self._clients.reading("ec2", region)
        try:
            with map_errors("ec2:CreateLaunchTemplate", region):
                client.create_launch_template(
                    LaunchTemplateName=name,
                    LaunchTemplateData=content,
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": owned}],
                )
        except BadRequestError as error:
            if code_of(error) != EXISTS:
                raise


def _content(setup: NodeSetup) -> dict[str, Any]:
    user_data = setup.user_data.encode()
    if len(user_data) > MAX_USER_DATA_BYTES:
        raise BadRequestError(
            f"user data of {len(user_data)} bytes, and EC2 takes {MAX_USER_DATA_BYTES}",
            hint="put what is large into the job's bundle",
        )
    content: dict[str, Any] = {
        "ImageId": setup.image_id,
        "IamInstanceProfile": {"Name": setup.instance_profile},
        "UserData": base64.b64encode(user_data).decode(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        # The hop limit of 2 lets containers on the node reach the service.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 2,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": setup.root_device,
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": setup.root_gib,
                    "DeleteOnTermination": True,
                    "Encrypted": True,
                },
            }
        ],
    }
    if setup.key_name is not None:
        content["KeyName"] = setup.key_name
    return content


def _name(request: LaunchRequest, content: dict[str, Any]) -> str:
    said = json.dumps([request.owner, request.job, content], sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return _UNFIT.sub("-", f"costopt-{request.owner}-{request.job}")[:100] + f"-{digest}"
