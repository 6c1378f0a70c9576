"""Pods read as nodes: state, times, and how they ended.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.text import excerpt, untrusted_text
from costopt.provider.tags import NodeTags, time_of
from costopt_kubernetes import labels

TAKEN = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"})
"""Reasons in the status of a pod that was ended for its node's sake."""
OUT_OF_TIME = "DeadlineExceeded"


@dataclass(frozen=True, slots=True)
class ReadPod:
    """A pod as a node. ``host`` is the cluster's node, "" before it is scheduled.

    ``ends_at`` is when the grace of a deletion ends that was not ours; ``disrupted`` is the reason
    of what takes it, or "". ``why_waiting`` are the scheduler's words.
    """

    node: Node
    uid: str
    host: str
    created_at: datetime
    started_at: datetime | None
    ends_at: datetime | None
    disrupted: str
    why_waiting: str


def read_pod(item: Mapping[str, Any]) -> ReadPod | None:
    """Return the pod as a node; None if its annotations are not those of one."""
    metadata, status = item["metadata"], item.get("status") or {}
    notes = metadata.get("annotations") or {}
    tags = NodeTags.parse(notes, labels.PREFIX)
    created_at = time_of(metadata.get("creationTimestamp"))
    if tags is None or created_at is None:
        return None
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    deleted_at = time_of(metadata.get("deletionTimestamp"))
    ours = time_of(notes.get(labels.RELEASED))
    disrupted = _true(conditions.get("DisruptionTarget"), "reason")
    scheduled = conditions.get("PodScheduled") or {}
    host = str((item.get("spec") or {}).get("nodeName") or "")
    bound_at = time_of(scheduled.get("lastTransitionTime")) if host else None
    state = _state(status, deleted=deleted_at is not None, scheduled=bool(host))
    end = _end(status, ours, deleted_at, disrupted) if state is NodeState.ENDED else None
    return ReadPod(
        node=tags.node(
            metadata["name"],
            state,
            max(created_at, bound_at or created_at),
            None if end is None else _ended_at(status, conditions, ours),
            end,
        ),
        uid=metadata["uid"],
        host=host,
        created_at=created_at,
        started_at=time_of(status.get("startTime")),
        ends_at=deleted_at if ours is None else None,
        disrupted=disrupted if ours is None else "",
        why_waiting="" if host else excerpt(untrusted_text(str(scheduled.get("message") or ""))),
    )


def _state(status: Mapping[str, Any], *, deleted: bool, scheduled: bool) -> NodeState:
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return NodeState.ENDED
    if deleted:
        return NodeState.STOPPING
    if phase == "Running":
        return NodeState.RUNNING
    return NodeState.PENDING if scheduled else NodeState.WAITING


def _true(condition: Mapping[str, Any] | None, field: str) -> str:
    if condition is None or condition.get("status") != "True":
        return ""
    return str(condition.get(field) or "DisruptionTarget")


def _end(
    status: Mapping[str, Any], ours: datetime | None, deleted_at: datetime | None, disrupted: str
) -> tuple[EndCause, str]:
    """Return how a pod ended that has, and the words of who ended it."""
    said = excerpt(untrusted_text(str(status.get("message") or "")))
    reason = str(status.get("reason") or "")
    if ours is not None:
        return EndCause.RELEASED, ""
    if disrupted or reason in TAKEN:
        return EndCause.INTERRUPTED, f"{disrupted or reason}: {said}".removesuffix(": ")
    if reason == OUT_OF_TIME:
        return EndCause.INTERRUPTED, "it ran for max_run_s, after which the cluster ends it"
    if deleted_at is not None:
        return EndCause.INTERRUPTED, "its pod was deleted, not by costopt"
    codes = [f"{name} left with {code}{words}" for name, code, words in _exits(status)]
    return EndCause.FAILED, "; ".join([*codes, *filter(None, [reason, said])]) or "its pod ended"


def _exits(status: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    for each in (*_containers(status, "initContainerStatuses"), *_containers(status)):
        ended = (each.get("state") or {}).get("terminated")
        if ended is not None and (ended.get("exitCode") or each["name"] == "train"):
            words = excerpt(untrusted_text(str(ended.get("message") or "")))
            yield each["name"], int(ended.get("exitCode") or 0), f": {words}" if words else ""


def _containers(
    status: Mapping[str, Any], field: str = "containerStatuses"
) -> tuple[Mapping[str, Any], ...]:
    return tuple(status.get(field) or ())


def _ended_at(
    status: Mapping[str, Any], conditions: Mapping[str, Any], ours: datetime | None
) -> datetime | None:
    """Return when its last container ended, else the newest change that its conditions tell."""
    ends = [
        time_of(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in _containers(status)
    ]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    changes = (time_of(each.get("lastTransitionTime")) for each in conditions.values())
    return max(filter(None, changes), default=ours)
