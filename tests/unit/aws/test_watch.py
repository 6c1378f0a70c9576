"""What the account hears of its EC2 nodes: notices, ends, and regions that say nothing."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from costopt.domain.errors import ForbiddenError, ProviderUnavailableError
from costopt.domain.fleet import EndCause, NodeState
from costopt.domain.market import CapacityType
from tests.support.aws.account import ELSEWHERE, REGION, SPOT, NewAccount
from tests.support.aws.overlay.faults import drop, refuse, unauthorized
from tests.support.aws.overlay.instances import backend

WARNING = "EC2 Spot Instance Interruption Warning"


def _launched(account: NewAccount, key: str = "a") -> str:
    (node,) = account.provider.launch(account.request(1, key))
    return node.node_id


def test_a_notice_reported_twice_is_one(account: NewAccount) -> None:
    node_id = _launched(account)
    interrupts_at = account.cloud.interrupt(node_id)
    account.clock.sleep(5)
    detail = {"instance-id": node_id, "instance-action": "terminate"}
    account.cloud.tell(WARNING, detail)
    (notice,) = account.provider.notices("me")
    assert (notice.node_id, notice.interrupts_at) == (node_id, interrupts_at)
    assert account.provider.notices("me") == (notice,)


def test_a_controller_that_dies_before_it_writes_finds_the_notice_again(
    account: NewAccount,
) -> None:
    node_id = _launched(account)
    account.cloud.interrupt(node_id)
    assert account.provider.notices("me")
    sqs = account.cloud.client("sqs")
    url = account.queues[REGION]
    for message in backend_messages(account):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message, VisibilityTimeout=0)
    restarted = account.connect()
    restarted.nodes("me")
    assert [notice.node_id for notice in restarted.notices("me")] == [node_id]
    restarted.notices("me")
    assert _left(account) == 0


def backend_messages(account: NewAccount) -> list[str]:
    """The receipts that the adapter holds."""
    return list(account.provider._notices._receipts[REGION])


def _left(account: NewAccount) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    reported = account.cloud.client("sqs").get_queue_attributes(
        QueueUrl=account.queues[REGION], AttributeNames=names
    )
    return sum(int(reported["Attributes"][name]) for name in names)


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        '"text"',
        "{}",
        json.dumps({"detail-type": WARNING, "detail": {}, "time": "2026-01-01T00:00:00Z"}),
        json.dumps({"detail-type": WARNING, "detail": {"instance-id": "i-1"}, "time": "soon"}),
        json.dumps({"detail-type": "Something else", "detail": {"instance-id": "i-1"}}),
    ],
)
def test_a_message_that_says_nothing_is_taken_out_of_the_way(
    account: NewAccount, body: str
) -> None:
    node_id = _launched(account)
    account.cloud.client("sqs").send_message(QueueUrl=account.queues[REGION], MessageBody=body)
    account.cloud.interrupt(node_id)
    assert [notice.node_id for notice in account.provider.notices("me")] == [node_id]
    account.provider.notices("me")
    assert _left(account) == 0


def test_a_notice_of_a_node_that_is_not_listed_yet_is_kept(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.interrupt(node_id)
    restarted = account.connect()
    assert not restarted.notices("me")
    restarted.nodes("me")
    assert [notice.node_id for notice in restarted.notices("me")] == [node_id]


def test_a_rebalance_recommendation_is_not_an_interruption(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.tell("EC2 Instance Rebalance Recommendation", {"instance-id": node_id})
    assert not account.provider.notices("me")
    assert account.provider.rebalance_recommended(node_id) == account.clock.now()


def test_a_notice_that_comes_to_nothing_lapses(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.interrupt(node_id)
    assert account.provider.notices("me")
    account.clock.sleep(12 * 60 + 1)
    assert not account.provider.notices("me")


def test_the_time_of_an_unannounced_interruption_comes_from_its_event(account: NewAccount) -> None:
    node_id = _launched(account)
    account.clock.sleep(100)
    ended_at = account.clock.now()
    account.cloud.reclaim(node_id)
    account.clock.sleep(50)
    account.provider.notices("me")
    (node,) = account.provider.nodes("me")
    assert (node.ended_at, node.end_cause) == (ended_at, EndCause.INTERRUPTED)
    assert "SpotInstanceTermination" in node.message


def test_a_node_that_ec2_forgets_is_remembered_for_two_hours(account: NewAccount) -> None:
    node_id = _launched(account)
    account.provider.terminate(node_id)
    account.provider.nodes("me")
    backend(REGION).reservations.clear()
    account.clock.sleep(7200)
    assert [node.node_id for node in account.provider.nodes("me")] == [node_id]
    account.clock.sleep(1)
    account.provider.nodes("me")
    assert account.provider.nodes("me") == ()


def test_a_new_node_may_be_missing_from_the_list_for_a_while(account: NewAccount) -> None:
    account.cloud.launches.hide_new(99)
    node_id = _launched(account)
    assert [node.node_id for node in account.provider.nodes("me") if node.state.is_alive] == [
        node_id
    ]
    account.clock.sleep(301)
    (node,) = account.provider.nodes("me")
    assert (node.state, node.end_cause) == (NodeState.ENDED, EndCause.LOST)


def test_instances_of_others_and_half_tagged_ones_are_not_nodes(account: NewAccount) -> None:
    ec2 = account.cloud.client("ec2")
    ours = [{"Key": "costopt:owner", "Value": "me"}, {"Key": "Name", "Value": "the daemon"}]
    for tags in ([], ours):
        given = [{"ResourceType": "instance", "Tags": tags}] if tags else []
        ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=given)
    assert account.provider.nodes("me") == ()


def test_a_stopped_node_counts_as_failed(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.client("ec2").stop_instances(InstanceIds=[node_id])
    (node,) = account.provider.nodes("me")
    assert (node.state, node.end_cause) == (NodeState.ENDED, EndCause.FAILED)


def test_in_its_first_hour_a_noticed_node_is_left_to_ec2(account: NewAccount) -> None:
    node_id = _launched(account)
    account.clock.sleep(3600 - 120)
    account.cloud.interrupt(node_id)
    account.provider.notices("me")
    account.provider.terminate(node_id)
    assert account.cloud.alive() == [node_id]
    account.clock.sleep(120)
    account.cloud.reclaim(node_id)
    (node,) = account.provider.nodes("me")
    assert node.end_cause is EndCause.INTERRUPTED


def test_a_noticed_node_that_lives_on_is_terminated_after_all(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.interrupt(node_id)
    account.provider.notices("me")
    account.clock.sleep(239)
    account.provider.terminate(node_id)
    assert account.cloud.alive() == [node_id]
    account.clock.sleep(1)
    account.provider.terminate(node_id)
    assert not account.cloud.alive()


def test_after_its_first_hour_a_noticed_node_is_terminated_at_once(account: NewAccount) -> None:
    node_id = _launched(account)
    account.clock.sleep(3600 - 119)
    account.cloud.interrupt(node_id)
    account.provider.notices("me")
    account.provider.terminate(node_id)
    assert not account.cloud.alive()


def test_a_silent_region_keeps_its_nodes_and_is_named(account: NewAccount) -> None:
    here = _launched(account)
    (there,) = account.provider.launch(account.request(1, "b", ELSEWHERE))
    account.provider.nodes("me")
    account.cloud.faults.on("ec2", "*", drop, region="us-west-2")
    account.cloud.interrupt(here)
    account.cloud.reclaim(here)
    nodes = {node.node_id: node.state for node in account.provider.nodes("me")}
    assert nodes == {here: NodeState.ENDED, there.node_id: NodeState.RUNNING}
    assert account.provider.unreachable_regions() == {"us-west-2"}
    assert "us-west-2" in account.provider.errors_by_region()["aws us-west-2"]
    restarted = account.connect()
    assert [node.node_id for node in restarted.nodes("me")] == [here]
    assert restarted.unreachable_regions() == {"us-west-2"}
    assert account.provider.launch(account.request(1, "c"))


def test_where_no_region_answers_the_list_fails(account: NewAccount) -> None:
    _launched(account)
    account.cloud.faults.on("ec2", "*", drop)
    with pytest.raises(ProviderUnavailableError):
        account.provider.nodes("me")


def test_credentials_that_expire_keep_what_runs_and_say_so(account: NewAccount) -> None:
    node_id = _launched(account)
    account.cloud.faults.on("ec2", "*", refuse("ExpiredToken", "The token has expired"))
    with pytest.raises(ForbiddenError, match="have expired") as raised:
        account.provider.nodes("me")
    assert raised.value.hint is not None
    assert "log in again" in raised.value.hint
    assert account.cloud.alive() == [node_id]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (unauthorized, "sqs:ReceiveMessage"),
        (refuse("AWS.SimpleQueueService.NonExistentQueue", "No such queue"), "costopt-events"),
        (drop, "not answered"),
    ],
)
def test_a_queue_that_fails_is_reported_and_stops_nothing(
    account: NewAccount, fault: object, said: str
) -> None:
    node_id = _launched(account)
    account.cloud.faults.on("sqs", "ReceiveMessage", fault)  # type: ignore[arg-type]
    assert account.provider.notices("me") == ()
    assert said in account.provider.errors_by_region()["aws us-east-1 notices"]
    assert not account.provider.unreachable_regions()
    account.cloud.faults.reset()
    account.cloud.interrupt(node_id)
    assert account.provider.notices("me")
    assert not account.provider.errors_by_region()


def test_on_demand_nodes_have_no_free_hour(account: NewAccount) -> None:
    on_demand = SPOT.with_capacity_type(CapacityType.ON_DEMAND)
    (node,) = account.provider.launch(account.request(1, "a", on_demand))
    assert node.usd_per_hour == 0.8
    account.cloud.interrupt(node.node_id)
    account.provider.notices("me")
    account.provider.terminate(node.node_id)
    assert not account.cloud.alive()
    assert node.launched_at + timedelta(hours=1) > account.clock.now()
