"""What an EC2 launch asks for."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from costopt.domain.errors import BadRequestError, NoCapacityError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt_aws.bootstrap import NodeSetup
from costopt_aws.launch_request import RunInstancesRequest, client_token
from tests.support.aws.account import SPOT, TYPE, NewAccount
from tests.support.aws.overlay.call import Call, Forward, Reply
from tests.support.aws.overlay.faults import refuse

SETUP = NodeSetup("ami-1", "#!/bin/sh\n", "costopt-node", ("sg-1",))
BIG = Pool("aws", "us-east-1", "use1-az6", "p4d.24xlarge", CapacityType.SPOT)


def _asked(account: NewAccount, action: str) -> list[dict[str, str]]:
    """The parameters of all calls of ``action`` from now on."""
    seen: list[dict[str, str]] = []

    def look(call: Call, forward: Forward) -> Reply:
        seen.append(dict(parse_qsl(call.body.decode())))
        return forward(call)

    account.cloud.faults.on("ec2", action, look)
    return seen


def test_a_spot_launch_asks_for_all_or_none_without_a_price_limit(account: NewAccount) -> None:
    asked = _asked(account, "RunInstances")
    account.provider.launch(account.request(2))
    (launch,) = asked
    assert (launch["MinCount"], launch["MaxCount"]) == ("2", "2")
    assert launch["InstanceMarketOptions.MarketType"] == "spot"
    assert launch["Placement.AvailabilityZone"] == "us-east-1a"
    assert launch["ClientToken"] == client_token(account.request(2))
    assert not [name for name in launch if "MaxPrice" in name or "GroupName" in name]
    named = {launch[f"TagSpecification.1.Tag.{n}.Key"] for n in range(1, 7)}
    assert {"costopt:owner", "costopt:job", "costopt:key", "costopt:pool"} < named
    tagged = {launch[f"TagSpecification.{n}.ResourceType"] for n in (1, 2, 3)}
    assert tagged == {"instance", "volume", "network-interface"}


def test_on_demand_is_asked_for_only_by_name(account: NewAccount) -> None:
    asked = _asked(account, "RunInstances")
    account.provider.launch(
        account.request(1, "a", SPOT.with_capacity_type(CapacityType.ON_DEMAND))
    )
    assert not [name for name in asked[0] if name.startswith("InstanceMarketOptions")]
    with pytest.raises(NoCapacityError):
        account.provider.launch(account.request(4, "b"))
    assert len(asked) == 2
    assert len(account.cloud.alive()) == 1


def test_one_template_serves_all_launches_of_a_job(account: NewAccount) -> None:
    asked = _asked(account, "CreateLaunchTemplate")
    account.provider.launch(account.request(1, "a"))
    account.provider.launch(account.request(1, "b"))
    account.connect().launch(account.request(1, "c"))
    assert len({call["LaunchTemplateName"] for call in asked}) == 1
    data = {k.removeprefix("LaunchTemplateData."): v for k, v in asked[0].items()}
    assert data["MetadataOptions.HttpTokens"] == "required"
    assert data["IamInstanceProfile.Name"] == "costopt-node"
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp3"
    assert data["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert base64.b64decode(data["UserData"]) == b"#!/bin/sh\ntrue\n"
    account.bootstrap.said = replace(account.bootstrap.said, user_data="#!/bin/sh\nfalse\n")
    account.cloud.launches.room("us-east-1a", TYPE, 9)
    account.provider.launch(account.request(1, "d"))
    assert len({call["LaunchTemplateName"] for call in asked}) == 2


def test_a_template_that_was_removed_meanwhile_is_made_again(account: NewAccount) -> None:
    account.provider.launch(account.request(1, "a"))
    gone = refuse("InvalidLaunchTemplateName.NotFoundException", "does not exist")
    account.cloud.faults.on("ec2", "RunInstances", gone, nth=1)
    with pytest.raises(Exception, match="not exist"):
        account.provider.launch(account.request(1, "b"))
    assert account.provider.launch(account.request(1, "b"))
    assert account.cloud.faults.calls["ec2", "CreateLaunchTemplate"] == 2


def test_user_data_beyond_ec2s_limit_is_refused_here(account: NewAccount) -> None:
    account.bootstrap.said = replace(account.bootstrap.said, user_data="#" * 16_385)
    with pytest.raises(BadRequestError, match="16385 bytes"):
        account.provider.launch(account.request())


def test_a_gang_with_efa_is_placed_close_together(account: NewAccount) -> None:
    account.cloud.spot.price("us-east-1a", BIG.instance_type, 9.0)
    asked = _asked(account, "RunInstances")
    account.provider.launch(account.request(2, "a", BIG))
    account.provider.launch(account.request(1, "b", BIG))
    gang, single = asked
    (group,) = account.cloud.groups.groups.values()
    assert gang["Placement.GroupName"] == group.name
    assert group.strategy == "cluster"
    assert group.tags == {"costopt:owner": "me", "costopt:job": "job"}
    assert gang["NetworkInterface.1.InterfaceType"] == "efa"
    assert gang["NetworkInterface.4.InterfaceType"] == "efa-only"
    assert gang["NetworkInterface.4.NetworkCardIndex"] == "3"
    assert "NetworkInterface.5.InterfaceType" not in gang
    assert not [name for name in single if "NetworkInterface." in name or "GroupName" in name]


def test_subnets_and_groups_of_the_setup_are_used() -> None:
    order = _order(SPOT, 2, subnet_id="subnet-1")
    asked = order.parameters()
    assert (asked["SubnetId"], asked["SecurityGroupIds"]) == ("subnet-1", ["sg-1"])
    cards = replace(order, efa_interfaces=2).parameters()["NetworkInterfaces"]
    assert [(c["SubnetId"], c["Groups"], c["DeviceIndex"]) for c in cards] == [
        ("subnet-1", ["sg-1"], 0),
        ("subnet-1", ["sg-1"], 1),
    ]


def test_reserved_capacity_names_its_reservation() -> None:
    asked = _order(
        SPOT.with_capacity_type(CapacityType.RESERVED), 1, reservation_id="cr-1"
    ).parameters()
    assert asked["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    target = asked["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": "cr-1"}


def test_reserved_capacity_that_was_not_booked_is_none(account: NewAccount) -> None:
    reserved = SPOT.with_capacity_type(CapacityType.RESERVED)
    with pytest.raises(NoCapacityError, match="no Capacity Block"):
        account.provider.launch(account.request(1, "a", reserved))


def test_a_client_token_fits_whatever_the_key() -> None:
    request = LaunchRequest("me", "job", SPOT, 1, "k" * 200)
    assert len(client_token(request)) == 64
    assert client_token(request) != client_token(replace(request, owner="you"))


@pytest.mark.parametrize(
    ("change", "said", "remedy"),
    [
        ({"zone": "use1-az9"}, "no zone 'use1-az9'", "use1-az6"),
        ({"instance_type": "g6.huge"}, "no instance type 'g6.huge'", "costopt market"),
        ({"region": "eu-west-1"}, "region 'eu-west-1' is not one of", "us-east-1"),
    ],
)
def test_a_pool_that_does_not_exist_is_named_with_a_remedy(
    account: NewAccount, change: dict[str, Any], said: str, remedy: str
) -> None:
    with pytest.raises(BadRequestError, match=said) as raised:
        account.provider.launch(account.request(1, "a", replace(SPOT, **change)))
    assert raised.value.hint is not None
    assert remedy in raised.value.hint


def test_a_pool_whose_price_is_unknown_is_not_launched_in(account: NewAccount) -> None:
    account.cloud.spot.reset()
    with pytest.raises(NoCapacityError, match="price is not known"):
        account.provider.launch(account.request())
    assert not account.cloud.faults.calls["ec2", "RunInstances"]


def test_a_zone_may_be_called_by_its_name(account: NewAccount) -> None:
    pool = replace(SPOT, zone="us-east-1a")
    (node,) = account.provider.launch(account.request(1, "a", pool))
    assert node.pool == pool
    assert node.usd_per_hour == 0.4


def _order(pool: Pool, nodes: int, **given: Any) -> RunInstancesRequest:
    return RunInstancesRequest(
        request=LaunchRequest("me", "job", pool, nodes, "key"),
        setup=SETUP,
        template="costopt-me-job-1",
        zone_name="us-east-1a",
        usd_per_hour=0.4,
        **{"subnet_id": None, **given},
    )
