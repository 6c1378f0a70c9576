"""How nodes start: image, role, network and user data, from the options and the job's payload.

The user data is what a node runs on its first boot: one small script that holds no secrets. It
fetches the job from the store's bucket, whose region and lifecycle rules are read here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import BeforeValidator, Field

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.runtime import Payload
from costopt.provider.boot import MAX_UNREACHABLE_S
from costopt.provider.boot_script import render_boot_script
from costopt.provider.launch import payload_of
from costopt.provider.options import Listed, MachineOptions, Text, matches
from costopt_aws.boot import Ec2Platform
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.images import DEEP_LEARNING, ImageResolver

INSTANCE_PROFILE = "costopt-node"
ROOT_GIB = 200
SecurityGroup = Annotated[
    str, matches(r"sg-[0-9a-f]+", "the id of a security group, such as sg-0123456789abcdef0")
]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class NodeOptions(MachineOptions):
    """How nodes start."""

    image: Text | Mapping[Text, Text] = Field(
        default=DEEP_LEARNING,
        description="the name of an SSM parameter, or a mapping such as {us-east-1: ami-…}",
    )
    instance_profile: Text = Field(default=INSTANCE_PROFILE, description="the nodes' role")
    job_profiles: Mapping[Text, Text] = Field(
        default_factory=dict, description="a mapping of job to a role for its nodes alone"
    )
    secrets: Listed[Text] = Field(
        default=(), description="names or ARNs of secrets that nodes are to read, for the policies"
    )
    job_secrets: Mapping[Text, Listed[Text]] = Field(
        default_factory=dict, description="the same by job, for the roles of job_profiles"
    )
    repositories: Listed[Text] = Field(
        default=(), description="ECR repositories of images that nodes pull, for the policies"
    )
    security_groups: Mapping[
        Text, Annotated[tuple[SecurityGroup, ...], Field(strict=False), BeforeValidator(_listed)]
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
        """Return every instance profile of nodes; each is assumed to hold a role of its name."""
        return frozenset({self.instance_profile, *self.job_profiles.values()})


class AwsBootstrap:
    """The Bootstrap for nodes that fetch their job from the job's store."""

    def __init__(self, clients: Clients, options: NodeOptions) -> None:
        self._clients = clients
        self._options = options
        self._images = ImageResolver(clients, options.image)
        self._buckets: dict[str, tuple[str, str]] = {}

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """Return the setup of the request's nodes; the same for all launches of a job in a region.

        Raise BadRequestError if the job has no payload or the region has no image, ForbiddenError,
        ProviderUnavailableError.
        """
        region, options = request.pool.region, self._options
        payload = payload_of(options.payloads, request)
        image = self._images.image(region, datetime.now(UTC))
        store_region, endpoint = self._bucket(bucket_of(payload.store))
        return NodeSetup(
            image_id=image.image_id,
            user_data=user_data(
                payload,
                region=store_region,
                endpoint=endpoint,
                max_unreachable_s=options.max_unreachable_s,
            ),
            instance_profile=options.job_profiles.get(request.job, options.instance_profile),
            security_group_ids=options.security_groups.get(region, ()),
            subnet_ids=options.subnets,
            root_device=image.root_device,
            root_gib=max(options.root_gib, image.root_gib or 0),
            key_name=options.key_name,
        )

    def _bucket(self, bucket: str) -> tuple[str, str]:
        """Return the bucket's region, and the endpoint of S3 there."""
        if bucket not in self._buckets:
            region = bucket_region(self._clients, bucket)
            endpoint = self._clients.reading("s3", region).meta.endpoint_url
            self._buckets[bucket] = (region, endpoint)
        return self._buckets[bucket]


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """``user_data`` is plain text and holds no secrets; ``instance_profile`` a name.

    ``subnet_ids`` are by zone id; in a zone without one the default subnet is used. ``root_gib``
    is the size of the gp3 root volume, which is deleted with its node.
    """

    image_id: str
    user_data: str
    instance_profile: str
    security_group_ids: tuple[str, ...] = ()
    subnet_ids: Mapping[str, str] = field(default_factory=dict)
    root_device: str = "/dev/sda1"
    root_gib: int = 200
    key_name: str | None = None


class Bootstrap(Protocol):
    """Supplies the setup that nodes start with."""

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """Return the setup of the request's nodes; the same for all launches of a job in a region.

        Raise ProviderError if the image or the job's bundle is missing.
        """
        ...


ROOT = "/opt/costopt"
PYTHONS = (
    "/opt/pytorch/bin/python3",
    "/opt/conda/envs/pytorch/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3",
)
"""Where the Deep Learning AMIs keep the Python that has PyTorch (their release notes: a virtual
environment since PyTorch 2.5, a conda environment before), then a plain image's."""


def user_data(
    payload: Payload,
    *,
    region: str,
    endpoint: str,
    root: str = ROOT,
    pythons: tuple[str, ...] = PYTHONS,
    max_unreachable_s: float = MAX_UNREACHABLE_S,
) -> str:
    """Return the script for the nodes of the payload's job: the same text for the same payload.

    ``region`` and ``endpoint`` are those of the store's bucket. Raise BadRequestError if a node's
    role cannot open the store.
    """
    store = _store(payload.store, region, endpoint)
    more = {"max_unreachable_s": max_unreachable_s}
    return render_boot_script(payload, Ec2Platform, store, root=root, pythons=pythons, more=more)


def bucket_of(uri: str) -> str:
    """Return the bucket of a store. Raise BadRequestError if the URI is not of S3."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise BadRequestError(
            f"EC2 nodes cannot be reached through the store {uri!r}",
            hint="give the account file a store: of the kind s3://bucket/prefix",
        )
    return parts.netloc


def _store(uri: str, region: str, endpoint: str) -> Mapping[str, str]:
    bucket, parts = bucket_of(uri), urlsplit(uri)
    options = {**dict(parse_qsl(parts.query)), "region": region}
    return {
        "uri": parts._replace(query=urlencode(options)).geturl(),
        "bucket": bucket,
        "prefix": parts.path.strip("/"),
        "region": region,
        "endpoint": options.get("endpoint", endpoint).rstrip("/"),
    }


ANY_REGION = "us-east-1"
"""S3 answers here for the location of any bucket of the account."""
LEGACY_LOCATIONS = {None: ANY_REGION, "": ANY_REGION, "EU": "eu-west-1"}
"""https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLocation.html"""


def bucket_region(clients: Clients, bucket: str) -> str:
    """Return the region of a bucket. Raise BadRequestError if it does not exist, ForbiddenError."""
    with map_errors("s3:GetBucketLocation", f"bucket {bucket}"):
        response = clients.reading("s3", ANY_REGION).get_bucket_location(Bucket=bucket)
    location = response.get("LocationConstraint")
    return str(LEGACY_LOCATIONS.get(location, location))


def expires_old_versions(clients: Clients, region: str, bucket: str, prefix: str) -> bool:
    """Return whether a lifecycle rule expires the replaced versions of all objects of a prefix.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html.
    Raise ForbiddenError.
    """
    try:
        with map_errors("s3:GetLifecycleConfiguration", f"bucket {bucket}"):
            s3 = clients.reading("s3", region)
            rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", [])
    except BadRequestError as error:
        if code_of(error) != "NoSuchLifecycleConfiguration":
            raise
        return False
    return any(_ends_versions(rule, prefix) for rule in rules)


def _ends_versions(rule: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a rule expires replaced versions; rules by tag or size do not cover all."""
    only: Mapping[str, str] = rule.get("Filter") or {"Prefix": rule.get("Prefix", "")}
    return (
        rule.get("Status") == "Enabled"
        and "NoncurrentVersionExpiration" in rule
        and set(only) <= {"Prefix"}
        and prefix.startswith(only.get("Prefix", ""))
    )
