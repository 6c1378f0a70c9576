"""Runs on a cluster when the API fails and controllers die: nothing doubled, nothing left."""

from __future__ import annotations

from itertools import count

import pytest

from costopt.controller.orphans import find_orphans
from costopt.domain.events import NodeEnded, NodeLaunched
from costopt.domain.view import Target
from tests.support.cloud_engine import CloudScene
from tests.support.kubernetes.cluster import SPOT, NewCluster
from tests.support.kubernetes.proxy import (
    Fault,
    Sent,
    cut,
    garbage,
    lose_reply,
    lose_request,
    refuse,
)

FAULTS: dict[str, Fault] = {
    "throttled": refuse(429, "TooManyRequests", Retry_After="7"),
    "failed": refuse(500, "InternalError"),
    "expired": refuse(410, "Expired"),
    "unanswered": lose_request,
    "lost": lose_reply,
    "cut": cut,
    "garbage": garbage,
}
CALLS = {
    "list pods": ("GET", "/pods"),
    "list nodes": ("GET", "v1/nodes"),
    "create": ("POST", "/pods"),
    "annotate": ("PATCH", "/pods/"),
    "delete": ("DELETE", "/pods/"),
}


def spoil(cluster: NewCluster, call: str, fault: Fault, times: int = 2) -> None:
    """Let so many of these calls go wrong."""
    method, part = CALLS[call]
    numbers = count()

    def choose(sent: Sent) -> Fault | None:
        if sent.method == method and part in sent.path and next(numbers) < times:
            return fault
        return None

    cluster.proxy.fault = choose


def check(scene: CloudScene[NewCluster], nodes: int) -> None:
    """The ledger holds the pods that are there, which are those that are wanted, and none twice."""
    cluster = scene.account
    assert scene.live() == {pod["metadata"]["name"] for pod in cluster.pods()}
    assert len(scene.live()) == nodes
    scene.engine.stop("the test is over")
    scene.go(4)
    assert not cluster.pods()
    launched = [event.node_id for event in scene.events(NodeLaunched)]
    assert sorted(launched) == sorted(event.node_id for event in scene.events(NodeEnded))
    assert len(launched) == len(set(launched))
    records = scene.engine.journal.records
    assert not find_orphans(cluster.provider, "me", records, cluster.clock.now(), 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_twice_costs_nothing_but_time(
    cluster: NewCluster, call: str, fault: str
) -> None:
    spoil(cluster, call, FAULTS[fault])
    scene = CloudScene(cluster, Target(SPOT, 2))
    scene.go(6)
    check(scene, 2)


@pytest.mark.slow
def test_a_slow_answer_is_one_whose_outcome_is_not_known(cluster: NewCluster) -> None:
    plain = cluster.connect

    def connect(**more: object) -> object:
        return plain(timeout_s=0.5, **more)

    import time

    def slow(sent: Sent, forward: object) -> object:
        assert callable(forward)
        reply = forward()
        time.sleep(1.0)
        return reply

    cluster.connect = connect  # type: ignore[method-assign, assignment]
    spoil(cluster, "create", slow, times=1)  # type: ignore[arg-type]
    scene = CloudScene(cluster, Target(SPOT, 2))
    scene.go(6)
    check(scene, 2)


@pytest.mark.slow
def test_a_controller_that_dies_between_pods_launches_nothing_twice(cluster: NewCluster) -> None:
    spoil(cluster, "create", lose_reply, times=1)
    scene = CloudScene(cluster, Target(SPOT, 3))
    scene.go(1)
    scene.restart()
    scene.go(5)
    check(scene, 3)


def test_where_the_server_names_a_time_it_is_left_alone_until_then(cluster: NewCluster) -> None:
    from costopt.domain.errors import ThrottledError

    cluster.proxy.fault = lambda sent: refuse(429, "TooManyRequests", Retry_After="60")
    with pytest.raises(ThrottledError):
        cluster.provider.nodes("me")
    asked = len(cluster.proxy.sent)
    cluster.proxy.fault = lambda sent: None
    with pytest.raises(ThrottledError):
        cluster.provider.nodes("me")
    assert len(cluster.proxy.sent) == asked
    cluster.clock.sleep(61)
    assert cluster.provider.nodes("me") == ()
