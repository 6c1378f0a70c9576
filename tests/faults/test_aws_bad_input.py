"""Wrong credentials, regions, types and images: one message that names the thing and the remedy."""

from __future__ import annotations

import pytest

import costopt_aws
from costopt.domain.errors import BadRequestError, CostoptError, ForbiddenError
from costopt.provider.base import ProviderOptions
from costopt_aws import AwsProvider
from tests.support.aws.account import NewAccount
from tests.support.aws.cloud import Cloud
from tests.support.aws.cloud_clock import CloudClock
from tests.support.aws.overlay.faults import refuse


def _connect(**options: object) -> AwsProvider:
    given: ProviderOptions = {"regions": ["us-east-1"], "scored_nodes": None, **options}
    return costopt_aws.connect(CloudClock(), given)


def _reported(error: CostoptError, thing: str, remedy: str) -> None:
    assert thing in error.message
    assert error.hint is not None
    assert remedy in error.hint
    assert "\n" not in error.message


def test_no_credentials(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(ForbiddenError) as raised:
        _connect().nodes("me")
    _reported(raised.value, "none were found", "AWS_PROFILE")


def test_a_profile_that_does_not_exist(cloud: Cloud) -> None:
    with pytest.raises(BadRequestError) as raised:
        _connect(profile="nobody").nodes("me")
    _reported(raised.value, "nobody", "aws configure list-profiles")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ExpiredToken", "log in again"),
        ("RequestExpired", "log in again"),
        ("AuthFailure", "enable-region"),
        ("OptInRequired", "enable-region"),
        ("UnrecognizedClientException", "opt-in region"),
    ],
)
def test_credentials_that_a_region_refuses(account: NewAccount, code: str, remedy: str) -> None:
    account.cloud.faults.on("ec2", "*", refuse(code, "AWS was not able to validate them", 401))
    with pytest.raises(ForbiddenError) as raised:
        account.provider.nodes("me")
    _reported(raised.value, "us-east-1", remedy)


@pytest.mark.parametrize(
    ("regions", "thing"),
    [
        (["us-east-1a"], "'us-east-1a'"),
        (["US East"], "'US East'"),
        ([], "at least one"),
        ("us-east-1", "'us-east-1'"),
        (None, "nothing"),
    ],
)
def test_a_wrong_name_of_a_region(regions: object, thing: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        _connect(regions=regions)
    _reported(raised.value, thing, "us-east-1")


def test_options_that_do_not_exist_are_named() -> None:
    with pytest.raises(BadRequestError) as raised:
        _connect(region="us-east-1")
    _reported(raised.value, "option region: unknown", "regions")


@pytest.mark.parametrize(
    ("code", "said", "remedy"),
    [
        ("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist", "region"),
        ("InvalidAMIID.Malformed", 'Invalid id: "ami"', "ami-0123456789abcdef0"),
        ("InvalidAMIID.Unavailable", "The image ID is not available", "deregistered"),
        ("Unsupported", "g6.xlarge is not supported in us-east-1a", "zone"),
        ("InsufficientFreeAddressesInSubnet", "Not enough free addresses", "subnet"),
        ("VcpuLimitExceeded", "You have requested more vCPU capacity", "Service Quotas"),
        ("InvalidParameterValue", "Value (costopt-node) for parameter iamInstanceProfile", "role"),
        ("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", "subnets"),
        ("InvalidGroup.NotFound", "The security group 'sg-1' does not exist", "security_groups"),
    ],
)
def test_what_a_launch_names_and_the_region_has_not(
    account: NewAccount, code: str, said: str, remedy: str
) -> None:
    account.cloud.faults.on("ec2", "RunInstances", refuse(code, said))
    with pytest.raises(CostoptError) as raised:
        account.provider.launch(account.request())
    _reported(raised.value, said, remedy)
    assert "aws/us-east-1/use1-az6/g6.xlarge/spot" in raised.value.message


def test_a_region_that_does_not_exist(cloud: Cloud) -> None:
    with pytest.raises(BadRequestError) as raised:
        _connect(regions=["us-easy-1"]).nodes("me")
    _reported(raised.value, "'us-easy-1'", "us-east-1")
    assert not cloud.faults.calls
