"""Runs on each cloud when calls fail and controllers die: nothing doubled, nothing left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from costopt.domain.events import NodeLaunched
from costopt.domain.view import Target
from tests.support.aws.overlay.faults import FAULTS as AWS_FAULTS
from tests.support.aws.overlay.faults import UNREADABLE as AWS_UNREADABLE
from tests.support.cloud_accounts import either, on_each
from tests.support.cloud_engine import CloudScene
from tests.support.crashing_ledger import Crash, CrashingLedger
from tests.support.gcp.faults import FAULTS as GCP_FAULTS
from tests.support.gcp.faults import UNREADABLE as GCP_UNREADABLE

__all__ = ["either"]

CALLS = {
    "aws_server": ("DescribeInstances", "RunInstances", "TerminateInstances"),
    "gcp_server": (
        "instances.aggregatedList",
        "instances.bulkInsert",
        "instances.delete",
        "instances.list",
        "zoneOperations.list",
        "zoneOperations.wait",
    ),
}
FAULTS: dict[str, Iterable[str]] = {"aws_server": AWS_FAULTS, "gcp_server": GCP_FAULTS}
UNREADABLE: dict[str, Iterable[str]] = {
    "aws_server": AWS_UNREADABLE,
    "gcp_server": GCP_UNREADABLE,
}


@pytest.mark.exhaustive
@on_each(
    "call, fault",
    {server: [(c, f) for c in CALLS[server] for f in FAULTS[server]] for server in FAULTS},
)
def test_a_call_that_fails_twice_costs_nothing_but_time(either: Any, call: str, fault: str) -> None:
    either.fail(call, either.faults[fault], times=2)
    scene = CloudScene(either, Target(either.spot, 2))
    scene.go(6)
    scene.check(2)


@pytest.mark.exhaustive
@on_each(
    "call, response",
    {server: [(c, a) for c in CALLS[server] for a in UNREADABLE[server]] for server in UNREADABLE},
)
def test_a_call_that_is_answered_by_a_proxy_costs_nothing_but_time(
    either: Any, call: str, response: str
) -> None:
    either.fail(call, either.unreadable[response], times=2)
    scene = CloudScene(either, Target(either.spot, 2))
    scene.go(6)
    scene.check(2)
    assert len(scene.events(NodeLaunched)) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("nth", range(1, 10))
def test_a_controller_that_dies_at_any_write_adopts_its_nodes(
    either: Any, nth: int, durable: bool
) -> None:
    scene = CloudScene(either, Target(either.spot, 2), ledger=CrashingLedger(nth, durable))
    crashed = False
    for step in range(8):
        if step == 4:
            for node_id in sorted(scene.live())[1:]:
                either.interrupt(node_id)
        try:
            scene.go(1)
        except Crash:
            crashed = True
            scene.restart()
    assert crashed
    either.clock.sleep(600)
    scene.go(4)
    scene.check(2)
