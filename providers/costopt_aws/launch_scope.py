"""What the controller may launch with, as ARNs: only what the provider's options name.

Resource types of RunInstances and their condition keys:
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from costopt_aws.images import IMAGE_ID
from costopt_aws.options import QUEUE_URL, AwsOptions

AMAZON = "amazon"
OWN_ACCOUNT = "${aws:PrincipalAccount}"
"""A policy variable of IAM: the account of the role to which the policy belongs."""
PUBLIC_PARAMETERS = "/aws/service/"
_DIRECTIONS = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}


@dataclass(frozen=True, slots=True)
class LaunchScope:
    """Roles of nodes, and lists of ARNs in which every unnamed part is a wildcard.

    ``used``: what launches refer to and that has no tag of ours. ``images_of_owners``: images that
    are restricted only by their owner, one of ``image_owners``. ``parameters``: SSM parameters
    that name images. ``queues``: the queues of interruption notices.
    """

    node_roles: frozenset[str]
    used: list[str]
    images_of_owners: list[str]
    image_owners: tuple[str, ...]
    parameters: list[str]
    queues: list[str]

    @classmethod
    def from_options(cls, options: AwsOptions) -> LaunchScope:
        """Return the scope that these options name."""
        named = sorted(_image_parameters(options))
        public = all(name.startswith(PUBLIC_PARAMETERS) for name in named)
        return cls(
            node_roles=options.profiles,
            used=[*_used(options), *_image_ids(options)],
            images_of_owners=["arn:aws:ec2:*::image/*"] if named else [],
            image_owners=(AMAZON,) if public else (AMAZON, OWN_ACCOUNT),
            parameters=[_parameter_arn(name) for name in named],
            queues=[_queue_arn(*item) for item in sorted(options.queues.items())],
        )


def _used(options: AwsOptions) -> Iterator[str]:
    yield "arn:aws:ec2:*:*:capacity-reservation/*"
    yield "arn:aws:ec2:*:*:spot-instances-request/*"
    if options.key_name is not None:
        yield f"arn:aws:ec2:*:*:key-pair/{options.key_name}"
    for region in sorted(options.regions):
        groups = options.security_groups.get(region) or ("*",)
        yield from (f"arn:aws:ec2:{region}:*:security-group/{group}" for group in sorted(groups))
        subnets = subnets_in(region, options.subnets) or ["*"]
        yield from (f"arn:aws:ec2:{region}:*:subnet/{subnet}" for subnet in subnets)


def subnets_in(region: str, by_zone_id: Mapping[str, str]) -> list[str]:
    """Return the subnets of a region's zones, sorted."""
    code = zone_id_prefix(region)
    return sorted(subnet for zone_id, subnet in by_zone_id.items() if zone_id.startswith(code))


def zone_id_prefix(region: str) -> str:
    """Return the prefix of the ids of a region's zones: "apne1-" for ap-northeast-1.

    https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html
    """
    country, *directions, number = region.split("-")
    return country + "".join(_DIRECTIONS.get(word, word[0]) for word in directions) + number + "-"


def _image_parameters(options: AwsOptions) -> set[str]:
    image = options.image
    named = {image} if isinstance(image, str) else set(image.values())
    return {name for name in named if not IMAGE_ID.fullmatch(name)}


def _image_ids(options: AwsOptions) -> list[str]:
    image = options.image
    ids = {} if isinstance(image, str) else image
    return [
        f"arn:aws:ec2:{region}::image/{image_id}"
        for region, image_id in sorted(ids.items())
        if IMAGE_ID.fullmatch(image_id)
    ]


def _parameter_arn(name: str) -> str:
    """Return the ARN; public parameters belong to no account, shared ones are named by ARN."""
    if name.startswith("arn:"):
        return name
    account = "" if name.startswith(PUBLIC_PARAMETERS) else "*"
    return f"arn:aws:ssm:*:{account}:parameter/{name.partition(':')[0].lstrip('/')}"


def _queue_arn(region: str, url: str) -> str:
    found = re.fullmatch(QUEUE_URL, url)
    assert found is not None, "options are checked"
    return f"arn:aws:sqs:{region}:{found['account']}:{found['name']}"
