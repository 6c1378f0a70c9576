"""How a pod's status is read: states, and why it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from costopt.domain.fleet import EndCause, NodeState
from costopt_kubernetes import labels
from costopt_kubernetes.pods import ReadPod, read_pod

AT = "2026-07-01T10:00:00Z"
LATER = "2026-07-01T11:00:00Z"
NOTES = {
    labels.OWNER: "me",
    labels.JOB: "job",
    labels.KEY: "key",
    labels.PREFIX + "pool": "kubernetes/test/zone-a/g5.xlarge/spot",
    labels.PREFIX + "usd-per-hour": "0.25",
}


def pod(
    status: dict[str, Any], host: str = "node-1", released: bool = False, deleted: bool = False
) -> ReadPod:
    metadata: dict[str, Any] = {
        "name": "costopt-x-0",
        "uid": "u",
        "creationTimestamp": AT,
        "annotations": NOTES | ({labels.RELEASED: AT} if released else {}),
    }
    if deleted:
        metadata["deletionTimestamp"] = LATER
    spec = {"nodeName": host} if host else {}
    found = read_pod({"metadata": metadata, "spec": spec, "status": status})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "host", "deleted", "state"),
    [
        ({"phase": "Pending"}, "", False, NodeState.WAITING),
        ({"phase": "Pending"}, "node-1", False, NodeState.PENDING),
        ({"phase": "Running"}, "node-1", False, NodeState.RUNNING),
        ({"phase": "Running"}, "node-1", True, NodeState.STOPPING),
        ({"phase": "Failed"}, "node-1", True, NodeState.ENDED),
        ({"phase": "Succeeded"}, "node-1", False, NodeState.ENDED),
    ],
)
def test_states(status: dict[str, Any], host: str, deleted: bool, state: NodeState) -> None:
    assert pod(status, host, deleted=deleted).node.state is state


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def failed(code: int = 1, **more: Any) -> dict[str, Any]:
    end = {"exitCode": code, "finishedAt": LATER, "message": "no module named torch"}
    return {
        "phase": "Failed",
        "containerStatuses": [{"name": "train", "state": {"terminated": end}}],
        **more,
    }


@pytest.mark.parametrize(
    ("status", "flags", "cause"),
    [
        (failed(), {}, EndCause.FAILED),
        (failed(), {"released": True}, EndCause.RELEASED),
        (failed(0), {"deleted": True}, EndCause.INTERRUPTED),
        (failed(0), {"deleted": True, "released": True}, EndCause.RELEASED),
        (failed(143, conditions=[DISRUPTED]), {}, EndCause.INTERRUPTED),
        (failed(137, reason="Evicted", message="low on memory"), {}, EndCause.INTERRUPTED),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, {}, EndCause.INTERRUPTED),
        ({"phase": "Succeeded"}, {}, EndCause.FAILED),
    ],
)
def test_why_a_pod_ended(status: dict[str, Any], flags: dict[str, Any], cause: EndCause) -> None:
    assert pod(status, **flags).node.end_cause is cause


def test_a_failed_pod_says_what_its_container_said_last() -> None:
    node = pod(failed()).node
    assert "no module named torch" in node.message
    assert node.ended_at == datetime(2026, 7, 1, 11, tzinfo=UTC)


def test_a_deletion_is_a_notice_unless_it_is_ours() -> None:
    assert pod({"phase": "Running"}, deleted=True).ends_at is not None
    assert pod({"phase": "Running"}, deleted=True, released=True).ends_at is None


def test_the_pods_of_others_are_not_nodes() -> None:
    assert read_pod({"metadata": {"name": "web", "uid": "u", "creationTimestamp": AT}}) is None
