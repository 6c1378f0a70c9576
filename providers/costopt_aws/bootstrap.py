"""How nodes come up: image, role, network and user data, from options and the job's payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, InstanceOf

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.payload import Payload
from costopt.provider.options import OptionModel, Text, matches
from costopt_aws.ami import DEEP_LEARNING, ImageResolver
from costopt_aws.bucket import bucket_region
from costopt_aws.clients import Clients
from costopt_aws.node_setup import NodeSetup
from costopt_aws.user_data import bucket_of, user_data

INSTANCE_PROFILE = "costopt-node"
ROOT_GIB = 200
SecurityGroup = Annotated[
    str, matches(r"sg-[0-9a-f]+", "the id of a security group, such as sg-0123456789abcdef0")
]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class NodeOptions(OptionModel):
    """``payloads``: what nodes fetch, by job; the mapping may grow after it was given."""

    injected: ClassVar[frozenset[str]] = frozenset({"payloads"})

    payloads: InstanceOf[Mapping[str, Payload]] = Field(
        default_factory=dict, description="a mapping of what nodes fetch, by job"
    )
    image: Text | Mapping[Text, Text] = Field(
        default=DEEP_LEARNING,
        description="the name of an SSM parameter, or a mapping such as {us-east-1: ami-…}",
    )
    instance_profile: Text = Field(default=INSTANCE_PROFILE, description="the nodes' role")
    job_profiles: Mapping[Text, Text] = Field(
        default_factory=dict, description="a mapping of job to a role for its nodes alone"
    )
    security_groups: Mapping[
        Text,
        Annotated[tuple[SecurityGroup, ...], Field(strict=False), BeforeValidator(_listed)],
    ] = Field(
        default_factory=dict,
        description="a mapping of region to ids; default: the network's own group, whose members "
        "reach each other",
    )
    subnets: Mapping[Text, Text] = Field(
        default_factory=dict,
        description="a mapping of zone id to subnet; default: the zone's default subnet",
    )
    root_gib: int = Field(
        default=ROOT_GIB, ge=8, le=16_384, description="size of a node's gp3 root volume in GiB"
    )
    key_name: Text | None = Field(default=None, description="an EC2 key pair, to log in")

    @property
    def profiles(self) -> frozenset[str]:
        """Every instance profile that nodes may have; each is taken to hold a role of its name."""
        return frozenset({self.instance_profile, *self.job_profiles.values()})


class AwsBootstrap:
    """The Bootstrap of nodes that fetch their job from its store."""

    def __init__(self, clients: Clients, options: NodeOptions) -> None:
        self._clients = clients
        self._options = options
        self._images = ImageResolver(clients, options.image)
        self._buckets: dict[str, tuple[str, str]] = {}

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """For the nodes of ``request``; the same for all launches of a job in a region.

        Raises BadRequestError where the job has no payload or the region no image, ForbiddenError,
        ProviderUnavailableError.
        """
        region, options = request.pool.region, self._options
        payload = options.payloads.get(request.job)
        if payload is None:
            raise BadRequestError(
                f"{request.pool}: nothing was uploaded for nodes of job {request.job!r}",
                hint="start the job with `costopt run`, which uploads its folder",
            )
        image = self._images.image(region, datetime.now(UTC))
        store_region, endpoint = self._bucket(bucket_of(payload.store))
        return NodeSetup(
            image_id=image.image_id,
            user_data=user_data(payload, region=store_region, endpoint=endpoint),
            instance_profile=options.job_profiles.get(request.job, options.instance_profile),
            security_group_ids=options.security_groups.get(region, ()),
            subnet_ids=options.subnets,
            root_device=image.root_device,
            root_gib=max(options.root_gib, image.root_gib or 0),
            key_name=options.key_name,
        )

    def _bucket(self, bucket: str) -> tuple[str, str]:
        """The bucket's region, and the endpoint of S3 there."""
        if bucket not in self._buckets:
            region = bucket_region(self._clients, bucket)
            endpoint = self._clients.reading("s3", region).meta.endpoint_url
            self._buckets[bucket] = (region, endpoint)
        return self._buckets[bucket]
