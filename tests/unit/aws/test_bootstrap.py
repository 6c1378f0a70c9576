"""What EC2 nodes are started with: images by parameter or id, the bucket's region, options."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt.domain.runtime import Payload, StoredFile
from costopt_aws.bootstrap import AwsBootstrap, NodeOptions
from costopt_aws.clients import Clients
from costopt_aws.images import DEEP_LEARNING, ImageResolver
from tests.support.aws.cloud import Cloud

REGION = "eu-west-1"
PARAMETER = "/costopt/image"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
PAYLOAD = Payload("job", "s3://runs/a", StoredFile("w", "0", 1), StoredFile("b", "1", 1))


@pytest.fixture
def clients(cloud: Cloud) -> Iterator[Clients]:
    made = Clients(read_attempts=1)
    yield made
    made.close()


@pytest.fixture
def image_id(cloud: Cloud) -> str:
    """An image of the region, to which a parameter points."""
    ec2 = cloud.client("ec2", REGION)
    found = str(ec2.register_image(Name="deep", RootDeviceName="/dev/xvda")["ImageId"])
    ssm = cloud.client("ssm", REGION)
    ssm.put_parameter(Name=PARAMETER, Value=found, Type="String", Overwrite=True)
    return found


def request(region: str = REGION, job: str = "job") -> LaunchRequest:
    pool = Pool("aws", region, "euw1-az1", "g5.xlarge", CapacityType.SPOT)
    return LaunchRequest("me", job, pool, 1, "key")


def test_an_image_is_named_by_parameter_or_by_id(clients: Clients, image_id: str) -> None:
    by_parameter = ImageResolver(clients, PARAMETER).image(REGION, NOW)
    by_id = ImageResolver(clients, {REGION: image_id}).image(REGION, NOW)
    assert by_parameter == by_id
    assert by_id.image_id == image_id
    assert by_id.root_device.startswith("/dev/")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("/no/such/parameter", "no image parameter /no/such/parameter"),
        ({REGION: "ami-0123456789abcdef0"}, "ami-0123456789abcdef0"),
        ({"us-east-1": "ami-0123456789abcdef0"}, "no image is named for this region"),
        ("ami-0123456789abcdef0", "is of one region"),
    ],
)
def test_an_image_that_is_not_there_is_named(
    clients: Clients, named: str | dict[str, str], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        ImageResolver(clients, named).image(REGION, NOW)
    assert caught.value.hint


def test_nodes_are_reported_the_region_of_their_bucket(
    cloud: Cloud, clients: Clients, image_id: str
) -> None:
    cloud.client("s3", "us-west-2").create_bucket(
        Bucket="runs", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    options = NodeOptions.parse(
        {
            "image": PARAMETER,
            "payloads": {"job": PAYLOAD},
            "security_groups": {REGION: "sg-12345678"},
            "subnets": {"euw1-az1": "subnet-1"},
            "root_gib": 500,
        }
    )
    setup = AwsBootstrap(clients, options).setup(request())
    assert setup.image_id == image_id
    assert "s3://runs/a?region=us-west-2" in setup.user_data
    assert setup.instance_profile == "costopt-node"
    assert setup.security_group_ids == ("sg-12345678",)
    assert setup.subnet_ids == {"euw1-az1": "subnet-1"}
    assert setup.root_gib == 500
    assert setup == AwsBootstrap(clients, options).setup(request())


@pytest.mark.parametrize(("job", "profile"), [("job", "of-job"), ("later", "of-all")])
def test_a_job_may_have_a_role_of_its_own(
    cloud: Cloud, clients: Clients, image_id: str, job: str, profile: str
) -> None:
    cloud.client("s3").create_bucket(Bucket="runs")
    options = NodeOptions.parse(
        {
            "image": PARAMETER,
            "payloads": {"job": PAYLOAD, "later": PAYLOAD},
            "instance_profile": "of-all",
            "job_profiles": {"job": "of-job"},
        }
    )
    assert AwsBootstrap(clients, options).setup(request(job=job)).instance_profile == profile


def test_a_missing_bucket_and_a_missing_payload_are_named(clients: Clients, image_id: str) -> None:
    options = NodeOptions.parse({"image": PARAMETER, "payloads": {"job": PAYLOAD}})
    with pytest.raises(ProviderError, match="runs"):
        AwsBootstrap(clients, options).setup(request())
    with pytest.raises(BadRequestError, match=r"nothing was uploaded .*'other'"):
        AwsBootstrap(clients, options).setup(request(job="other"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("root_gib", 3),
        ("root_gib", "large"),
        ("image", 7),
        ("subnets", ["subnet-1"]),
        ("security_groups", {REGION: "default"}),
        ("payloads", "job"),
        ("job_profiles", "job"),
        ("job_profiles", {"job": None}),
    ],
)
def test_a_wrong_option_is_named(name: str, value: object) -> None:
    with pytest.raises(BadRequestError, match=name) as caught:
        NodeOptions.parse({name: value})
    assert caught.value.hint


def test_without_options_nodes_boot_the_deep_learning_image() -> None:
    assert NodeOptions.parse({}).image == DEEP_LEARNING
