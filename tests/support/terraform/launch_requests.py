"""What IAM is asked about one RunInstances: every resource that the launch makes or uses.

Placement groups are left out, as moto has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.aws.overlay.call import Call
from tests.support.aws.overlay.instances import backend

ACCOUNT = "123456789012"
Asked = tuple[str, str, Mapping[str, str]]
"""(action, resource, context)"""


def launch_requests(call: Call) -> Iterator[Asked]:
    """One for each resource, with the condition keys that EC2 sets for its kind."""
    action = "ec2:RunInstances"
    for kind in ("instance", "network-interface", "volume"):
        yield action, ec2_arn(call, kind, "*"), request_tags(call, kind)
    yield action, ec2_arn(call, "subnet", _subnet(call)), {}
    for group in _security_groups(call) or ["sg-default"]:
        yield action, ec2_arn(call, "security-group", group), {}
    template = _template(call)
    if template is not None:
        tags = {f"aws:ResourceTag/{t['key']}": t["value"] for t in template.get_tags()}
        yield action, ec2_arn(call, "launch-template", template.id), tags
    if key := call.params.get("KeyName"):
        yield action, ec2_arn(call, "key-pair", key), {}
    yield _image(call, template)


def ec2_arn(call: Call, kind: str, name: str) -> str:
    """Of a resource of the account in the region that is asked."""
    return f"arn:aws:ec2:{call.region}:{ACCOUNT}:{kind}/{name}"


def request_tags(call: Call, kind: str) -> dict[str, str]:
    """The tags that the call gives to what it makes of one kind."""
    context: dict[str, str] = {}
    for name, value in call.params.items():
        found = re.fullmatch(r"(TagSpecification\.\d+)\.Tag\.(\d+)\.Key", name)
        if found and call.params[f"{found[1]}.ResourceType"] == kind:
            tag = call.params[f"{found[1]}.Tag.{found[2]}.Value"]
            context[f"aws:RequestTag/{value}"] = tag
    return context


def _subnet(call: Call) -> str:
    named = (call.params.get(f"{at}SubnetId") for at in ("", "NetworkInterface.1."))
    return next(filter(None, named), "subnet-default")


def _security_groups(call: Call) -> list[str]:
    pattern = r"(NetworkInterface\.1\.)?SecurityGroupId\.\d+"
    return [value for name, value in call.params.items() if re.fullmatch(pattern, name)]


def _template(call: Call) -> Any:
    name = call.params.get("LaunchTemplate.LaunchTemplateName")
    templates = backend(call.region).launch_templates.values()
    return next((each for each in templates if each.name == name), None)


def _image(call: Call, template: Any) -> Asked:
    image_id = call.params.get("ImageId") or template.latest_version().image_id
    image = backend(call.region).amis.get(image_id)
    owner = "amazon" if image is None else image.owner_id
    context = {"ec2:Owner": owner, "aws:PrincipalAccount": ACCOUNT}
    return "ec2:RunInstances", f"arn:aws:ec2:{call.region}::image/{image_id}", context
