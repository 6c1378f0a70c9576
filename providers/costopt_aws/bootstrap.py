"""How nodes come up: image, role, network and user data, from options and the job's payload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.payload import Payload
from costopt.domain.ports import ProviderOptions
from costopt_aws.ami import DEEP_LEARNING, Images
from costopt_aws.bucket import bucket_region
from costopt_aws.clients import Clients
from costopt_aws.node_setup import NodeSetup
from costopt_aws.user_data import bucket_of, user_data

NODE_KEYS = frozenset(
    {
        "image",
        "instance_profile",
        "job_profiles",
        "key_name",
        "payloads",
        "root_gib",
        "security_groups",
        "subnets",
    }
)
INSTANCE_PROFILE = "costopt-node"
ROOT_GIB = 200
_GROUP = re.compile(r"sg-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """``image``: an image id by region, or an SSM parameter. ``payloads``: by job.

    ``instance_profile``: the nodes' role; ``job_profiles``: by job, another for its nodes.
    ``security_groups``: by region; without one the default group of the network, in which the nodes
    of a gang reach each other. ``subnets``: by zone id.
    """

    image: str | Mapping[str, str] = DEEP_LEARNING
    instance_profile: str = INSTANCE_PROFILE
    job_profiles: Mapping[str, str] = field(default_factory=dict)
    security_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    subnets: Mapping[str, str] = field(default_factory=dict)
    root_gib: int = ROOT_GIB
    key_name: str | None = None
    payloads: Mapping[str, Payload] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: ProviderOptions) -> NodeOptions:
        """Raises BadRequestError that names the option."""
        root_gib = options.get("root_gib", ROOT_GIB)
        if not isinstance(root_gib, int) or not 8 <= root_gib <= 16_384:
            raise BadRequestError(
                f"costopt_aws: option root_gib must be from 8 to 16384, not {root_gib!r}",
                hint="it is the size of a node's gp3 root volume in GiB",
            )
        image = options.get("image", DEEP_LEARNING)
        if not isinstance(image, (str, Mapping)):
            raise BadRequestError(
                f"costopt_aws: option image must be a parameter or a mapping, not {image!r}",
                hint="write image: {us-east-1: ami-…}, or the name of an SSM parameter",
            )
        return cls(
            image=cast("str | Mapping[str, str]", image),
            instance_profile=str(options.get("instance_profile", INSTANCE_PROFILE)),
            job_profiles=_profiles(_mapping(options, "job_profiles")),
            security_groups=_groups(_mapping(options, "security_groups")),
            subnets=cast("Mapping[str, str]", _mapping(options, "subnets")),
            root_gib=root_gib,
            key_name=cast("str | None", options.get("key_name")),
            payloads=cast("Mapping[str, Payload]", _mapping(options, "payloads")),
        )

    @property
    def profiles(self) -> frozenset[str]:
        """Every instance profile that nodes may have; each is taken to hold a role of its name."""
        return frozenset({self.instance_profile, *self.job_profiles.values()})


class AwsBootstrap:
    """The Bootstrap of nodes that fetch their job from its store."""

    def __init__(self, clients: Clients, options: NodeOptions) -> None:
        self._clients = clients
        self._options = options
        self._images = Images(clients, options.image)
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


def _mapping(options: ProviderOptions, name: str) -> Mapping[str, object]:
    value = options.get(name) or {}
    if not isinstance(value, Mapping):
        raise BadRequestError(
            f"costopt_aws: option {name} must be a mapping, not {value!r}",
            hint="write it by region; subnets by zone id, job_profiles and payloads by job",
        )
    return value


def _profiles(by_job: Mapping[str, object]) -> Mapping[str, str]:
    for job, value in by_job.items():
        if not isinstance(value, str) or not value:
            raise BadRequestError(
                f"costopt_aws: option job_profiles: {value!r} of job {job} is no instance profile",
                hint="write the name of one, or leave the job out",
            )
    return cast("Mapping[str, str]", by_job)


def _groups(by_region: Mapping[str, object]) -> Mapping[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for region, value in by_region.items():
        ids = (value,) if isinstance(value, str) else value
        if not isinstance(ids, (list, tuple)) or not all(_GROUP.fullmatch(str(i)) for i in ids):
            raise BadRequestError(
                f"costopt_aws: option security_groups: {value!r} in {region} is no security group",
                hint="an id looks like sg-0123456789abcdef0",
            )
        groups[region] = tuple(str(group) for group in ids)
    return groups
