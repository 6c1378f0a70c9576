"""Runs on EC2 when calls fail and controllers die: nothing doubled, nothing left, all told."""

from __future__ import annotations

import pytest

from costopt.domain.events import (
    InterruptionNoticed,
    LaunchFailed,
    NodeEnded,
    SignalStale,
)
from costopt.domain.fleet import EndCause
from costopt.domain.view import Target
from tests.support.aws.account import ELSEWHERE, SPOT, NewAccount
from tests.support.aws.overlay.faults import FAULTS, drop, refuse, unauthorized
from tests.support.cloud_engine import CloudScene


@pytest.mark.parametrize("fault", ["dropped", "lost", "throttled"])
def test_the_queue_may_fail_too(account: NewAccount, fault: str) -> None:
    scene = CloudScene(account, Target(SPOT, 1))
    scene.go(2)
    for action in ("ReceiveMessage", "DeleteMessageBatch"):
        account.cloud.faults.on("sqs", action, FAULTS[fault], times=2)
    account.cloud.interrupt(*scene.live())
    scene.go(1)
    account.cloud.reclaim(*scene.live())
    ended_at = account.clock.now()
    account.clock.sleep(20)
    listed_at = account.clock.now()
    scene.go(8)
    (end,) = scene.ends()
    # SQS does not deliver again within these minutes what was lost with its answer.
    expected = (listed_at, True) if fault == "lost" else (ended_at, False)
    assert (end.cause, end.ended_at, end.estimated) == (EndCause.INTERRUPTED, *expected)
    summary = scene.engine.journal.summary("job", account.clock.now())
    assert len(scene.hazards.pools) == summary.interruptions == 1
    assert {e.source for e in scene.events(SignalStale)} == {"aws us-east-1 notices"}
    scene.check(1)


def test_one_region_down_and_the_other_goes_on(account: NewAccount) -> None:
    scene = CloudScene(account, Target(SPOT, 2), Target(ELSEWHERE, 1))
    scene.go(2)
    there = set(account.cloud.alive("us-west-2"))
    account.cloud.faults.on("ec2", "*", drop, region="us-west-2")
    here = sorted(account.cloud.alive())
    account.cloud.interrupt(here[0])
    scene.go(1)
    account.cloud.reclaim(here[0])
    scene.go(9)
    assert [e.node_id for e in scene.events(InterruptionNoticed)] == [here[0]]
    assert [e.node_id for e in scene.ends()] == [here[0]]
    assert len(account.cloud.alive()) == 2
    assert there <= scene.live()
    assert "aws us-west-2" in {e.source for e in scene.events(SignalStale)}
    account.cloud.faults.reset()
    scene.go(1)
    scene.check(3)


def test_a_controller_that_starts_while_a_region_is_down_keeps_its_nodes(
    account: NewAccount,
) -> None:
    scene = CloudScene(account, Target(SPOT, 1), Target(ELSEWHERE, 1))
    scene.go(2)
    account.cloud.faults.on("ec2", "*", drop, region="us-west-2")
    scene.restart()
    scene.go(9)
    assert not scene.events(NodeEnded)
    account.cloud.faults.reset()
    scene.go(1)
    scene.check(2)


def test_expired_credentials_end_nothing_and_are_reported_once(account: NewAccount) -> None:
    scene = CloudScene(account, Target(SPOT, 2))
    scene.go(2)
    expired = refuse("ExpiredToken", "The security token included in the request is expired")
    for service in ("ec2", "sqs", "pricing"):
        account.cloud.faults.on(service, "*", expired)
    scene.go(9)
    assert not scene.events(NodeEnded)
    (reported,) = {event.message for event in scene.events(SignalStale)}
    assert "have expired" in reported
    account.cloud.faults.reset()
    scene.go(1)
    scene.check(2)


def test_a_missing_permission_is_on_the_ledger_by_name(account: NewAccount) -> None:
    account.cloud.faults.on("ec2", "RunInstances", unauthorized)
    scene = CloudScene(account, Target(SPOT, 2))
    scene.go(2)
    (failed, *_) = scene.events(LaunchFailed)
    assert failed.error == "Forbidden"
    assert "may not ec2:RunInstances" in failed.message
    assert not account.cloud.alive()
