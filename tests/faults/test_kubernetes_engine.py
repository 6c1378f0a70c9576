"""Runs on a cluster when the API fails and controllers die: nothing doubled, nothing left."""

from __future__ import annotations

import pytest

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
    "garbage": garbage,
    "lost": lose_reply,
    "cut": cut,
}
DONE = ("lost", "cut")
"""Faults of the answer alone: what was asked for is done, and a pod deleted only once."""
CALLS = {
    "list pods": ("GET", "/pods"),
    "list nodes": ("GET", "v1/nodes"),
    "create": ("POST", "/pods"),
    "annotate": ("PATCH", "/pods/"),
    "delete": ("DELETE", "/pods/"),
}


ENDING = ("annotate", "delete")
"""Calls that only the end of a pod needs."""
MAX_TICKS = 60


def spoil(cluster: NewCluster, call: str, *faults: Fault) -> list[Fault]:
    """Let these calls go wrong, in turn; return what is left of the faults."""
    method, part = CALLS[call]
    left = list(faults)

    def choose(sent: Sent) -> Fault | None:
        if left and sent.method == method and part in sent.path:
            return left.pop(0)
        return None

    cluster.proxy.fault = choose
    return left


def go_through(scene: CloudScene[NewCluster], left: list[Fault]) -> None:
    """Go on until no fault is left, and then for as long as the last of them may have effects."""
    for _ in range(MAX_TICKS):
        if not left:
            break
        scene.go(1)
    assert not left
    scene.go(4)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_calls_that_fail_twice_in_every_way_cost_nothing_but_time(
    cluster: NewCluster, call: str
) -> None:
    """All faults in one run, as a new cluster takes longer than a tick."""
    times = {name: 1 if call == "delete" and name in DONE else 2 for name in FAULTS}
    left = spoil(cluster, call, *(FAULTS[name] for name in FAULTS for _ in range(times[name])))
    scene = CloudScene(cluster, Target(SPOT, 2))
    go_through(scene, [] if call in ENDING else left)
    scene.check(2, lambda: go_through(scene, left))


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
    left = spoil(cluster, "create", slow)  # type: ignore[arg-type]
    scene = CloudScene(cluster, Target(SPOT, 2))
    go_through(scene, left)
    scene.check(2, lambda: go_through(scene, left))


@pytest.mark.slow
def test_a_controller_that_dies_between_pods_launches_nothing_twice(cluster: NewCluster) -> None:
    left = spoil(cluster, "create", lose_reply)
    scene = CloudScene(cluster, Target(SPOT, 3))
    scene.go(1)
    scene.restart()
    scene.go(5)
    scene.check(3, lambda: go_through(scene, left))


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
