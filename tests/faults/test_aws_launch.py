"""EC2 launches when calls are throttled, refused, unanswered, or answered into the void."""

from __future__ import annotations

import json
from datetime import timedelta
from xml.sax.saxutils import escape

import pytest

from costopt.domain.errors import (
    ForbiddenError,
    ProviderUnavailableError,
    ThrottledError,
)
from costopt_aws.clients import Clients, Timeouts
from tests.support.aws.account import ELSEWHERE, TYPE, NewAccount
from tests.support.aws.overlay.call import Call, Forward, Reply
from tests.support.aws.overlay.faults import (
    drop_after,
    refuse,
    throttle,
)


def test_the_token_holds_where_the_list_is_behind(account: NewAccount) -> None:
    account.cloud.launches.hide_new(2)
    account.cloud.faults.on("ec2", "RunInstances", drop_after, nth=1)
    with pytest.raises(ProviderUnavailableError):
        account.provider.launch(account.request(2))
    nodes = account.connect().launch(account.request(2))
    assert {node.node_id for node in nodes} == set(account.cloud.alive())
    assert account.cloud.faults.calls["ec2", "RunInstances"] == 2


def test_a_changed_request_under_a_used_token_waits_for_the_list(account: NewAccount) -> None:
    """The price is a tag, so another price makes another request; the first one holds."""
    account.cloud.launches.hide_new(1)
    account.cloud.faults.on("ec2", "RunInstances", drop_after, nth=1)
    with pytest.raises(ProviderUnavailableError):
        account.provider.launch(account.request())
    account.cloud.spot.price("us-east-1a", TYPE, 0.5, account.clock.now())
    restarted = account.connect()
    with pytest.raises(ProviderUnavailableError, match="not visible yet"):
        restarted.launch(account.request())
    (node,) = restarted.launch(account.request())
    assert [node.node_id] == account.cloud.alive()
    assert node.usd_per_hour == 0.4


def test_throttling_after_a_lost_answer_leaves_the_outcome_open(account: NewAccount) -> None:
    """The engine must not write down that no node exists."""
    account.cloud.launches.hide_new(9)
    account.cloud.faults.on("ec2", "RunInstances", drop_after, nth=1)
    account.cloud.faults.on("ec2", "RunInstances", throttle, nth=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError):
            account.provider.launch(account.request())
    (node,) = account.provider.launch(account.request())
    assert [node.node_id] == account.cloud.alive()


def test_an_answer_that_never_comes_is_given_up(account: NewAccount) -> None:
    account.provider.launch(account.request(1, "warm"))
    hasty = account.connect(Clients(timeouts=Timeouts(launch_s=0.3), read_attempts=1))
    account.cloud.faults.on("ec2", "RunInstances", account.cloud.faults.hang_after, nth=1)
    with pytest.raises(ProviderUnavailableError, match="not answered"):
        hasty.launch(account.request())
    account.cloud.faults.reset()
    (node,) = account.connect().launch(account.request())
    assert node.node_id in account.cloud.alive()
    assert len(account.cloud.alive()) == 2


def test_a_missing_permission_is_named_even_in_code(account: NewAccount) -> None:
    message = "You are not authorized. Encoded authorization failure message: abc-DEF_1"
    account.cloud.faults.on("ec2", "RunInstances", refuse("UnauthorizedOperation", message, 403))
    with pytest.raises(ForbiddenError, match="may not ec2:RunInstances"):
        account.provider.launch(account.request(1, "a"))
    account.cloud.faults.on("sts", "DecodeAuthorizationMessage", _decoded)
    with pytest.raises(ForbiddenError, match="may not iam:PassRole on arn:aws:iam::1:role/n"):
        account.provider.launch(account.request(1, "b"))


def _decoded(call: Call, forward: Forward) -> Reply:
    context = {"action": "iam:PassRole", "resource": "arn:aws:iam::1:role/n"}
    reported = escape(json.dumps({"allowed": False, "context": context}))
    return Reply.xml(
        '<DecodeAuthorizationMessageResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<DecodeAuthorizationMessageResult><DecodedMessage>{reported}</DecodedMessage>"
        "</DecodeAuthorizationMessageResult></DecodeAuthorizationMessageResponse>"
    )


def test_throttling_holds_back_all_launches_of_the_region(account: NewAccount) -> None:
    account.cloud.faults.on("ec2", "RunInstances", throttle, nth=1)
    with pytest.raises(ThrottledError):
        account.provider.launch(account.request(1, "a"))
    with pytest.raises(ThrottledError, match="asked again from"):
        account.provider.launch(account.request(1, "b"))
    account.provider.launch(account.request(1, "c", ELSEWHERE))
    account.clock.sleep(30)
    account.provider.launch(account.request(1, "b"))


def test_a_node_too_new_to_be_found_is_not_called_gone(account: NewAccount) -> None:
    (node,) = account.provider.launch(account.request())
    not_found = refuse("InvalidInstanceID.NotFound", f"The instance ID '{node.node_id}' ...")
    account.cloud.faults.on("ec2", "TerminateInstances", not_found, times=2)
    with pytest.raises(ProviderUnavailableError, match=node.node_id):
        account.provider.terminate(node.node_id)
    account.clock.sleep(timedelta(minutes=6).total_seconds())
    account.provider.terminate(node.node_id)
    account.provider.terminate(node.node_id)
    assert not account.cloud.alive()
