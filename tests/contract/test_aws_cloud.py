"""The test cloud does what EC2 is documented to do where moto alone does not."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import drop_after, throttle, unauthorized


def run(cloud: Cloud, nodes: int = 1, token: str = "t", **more: object) -> list[str]:
    response = cloud.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType="g6.xlarge",
        MinCount=nodes,
        MaxCount=nodes,
        ClientToken=token,
        InstanceMarketOptions={"MarketType": "spot"},
        Placement={"AvailabilityZone": "us-east-1a"},
        **more,
    )
    return [instance["InstanceId"] for instance in response["Instances"]]


def test_a_client_token_launches_once(cloud: Cloud) -> None:
    assert run(cloud, 2) == run(cloud, 2) == cloud.alive()
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        run(cloud, 3)


def test_a_pool_without_room_says_so(cloud: Cloud) -> None:
    cloud.launches.room("us-east-1a", "g6.xlarge", 3)
    run(cloud, 2, "a")
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        run(cloud, 2, "b")
    run(cloud, 1, "c")
    assert len(cloud.alive()) == 3


def test_calls_go_wrong_as_asked(cloud: Cloud) -> None:
    cloud.faults.on("ec2", "RunInstances", throttle, nth=1)
    cloud.faults.on("ec2", "RunInstances", drop_after, nth=2)
    cloud.faults.on("sqs", "ListQueues", unauthorized)
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        run(cloud)
    assert not cloud.alive()
    with pytest.raises(ConnectionClosedError):
        run(cloud)
    assert run(cloud) == cloud.alive()
    with pytest.raises(ClientError, match="AccessDenied"):
        cloud.client("sqs").list_queues()
    assert cloud.faults.calls["ec2", "RunInstances"] == 3


def test_new_instances_may_be_invisible_at_first(cloud: Cloud) -> None:
    cloud.launches.hide_new(1)
    ids = run(cloud, 2)
    ec2 = cloud.client("ec2")
    assert not [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    (reservation,) = ec2.describe_instances()["Reservations"]
    assert [i["InstanceId"] for i in reservation["Instances"]] == ids


def test_an_interruption_is_reported_to_the_node_and_to_the_account(cloud: Cloud) -> None:
    (node,) = run(cloud)
    queue = cloud.queue()
    interrupts_at = cloud.interrupt(node)
    cloud.reclaim(node)
    reported = cloud.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    events = [json.loads(message["Body"]) for message in reported["Messages"]]
    assert [event["detail"]["instance-id"] for event in events] == [node, node]
    assert events[0]["detail-type"] == "EC2 Spot Instance Interruption Warning"
    seen = json.loads(_metadata(cloud, node, "latest/meta-data/spot/instance-action"))
    assert seen["time"] == f"{interrupts_at:%Y-%m-%dT%H:%M:%SZ}"
    assert not cloud.alive()


def test_a_node_has_its_own_role(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.metadata_endpoint("i-1"))
    credentials = boto3.session.Session().get_credentials()
    assert credentials is not None
    assert credentials.access_key == "ASIATESTNODE"


def test_metadata_without_a_token_is_refused(cloud: Cloud) -> None:
    url = cloud.metadata_endpoint("i-1") + "latest/meta-data/instance-id"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=60)


def _metadata(cloud: Cloud, node: str, path: str) -> str:
    endpoint = cloud.metadata_endpoint(node)
    ask = urllib.request.Request(
        endpoint + "latest/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "21600"},
    )
    token = urllib.request.urlopen(ask, timeout=60).read().decode()
    read = urllib.request.Request(endpoint + path, headers={"X-aws-ec2-metadata-token": token})
    body: bytes = urllib.request.urlopen(read, timeout=60).read()
    return body.decode()
