"""An instance as EC2 describes it, read as a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool
from costopt_aws import tags

STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "shutting-down": NodeState.STOPPING,
    "stopping": NodeState.STOPPING,
    # Nodes terminate when they shut down; one that somebody stopped by hand trains no more.
    "stopped": NodeState.ENDED,
    "terminated": NodeState.ENDED,
}
TAKEN = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
RELEASED = "Client.UserInitiatedShutdown"
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def read_node(item: Mapping[str, Any]) -> Node | None:
    """An entry of DescribeInstances; None where its tags are not those of a node.

    ``ended_at`` is None where EC2 does not tell when the node ended.
    """
    told = tags.parse_tags(item.get("Tags", ()))
    pool, price = _pool(told), _price(told)
    if pool is None or price is None or tags.KEY not in told:
        return None
    state = STATES[item["State"]["Name"]]
    ended = state is NodeState.ENDED
    reason = item.get("StateReason", {})
    return Node(
        node_id=item["InstanceId"],
        owner=told.get(tags.OWNER, ""),
        job=told.get(tags.JOB, ""),
        pool=pool,
        key=told[tags.KEY],
        state=state,
        launched_at=item["LaunchTime"].astimezone(UTC),
        usd_per_hour=price,
        ended_at=_ended_at(item) if ended else None,
        end_cause=_cause(item["State"]["Name"], str(reason.get("Code", ""))) if ended else None,
        message=str(reason.get("Message", "")) if ended else "",
    )


def _pool(told: Mapping[str, str]) -> Pool | None:
    try:
        return Pool.parse(told[tags.POOL])
    except (KeyError, ValueError):
        return None


def _price(told: Mapping[str, str]) -> float | None:
    try:
        return float(told[tags.PRICE])
    except (KeyError, ValueError):
        return None


def _cause(state: str, code: str) -> EndCause:
    if code in TAKEN:
        return EndCause.INTERRUPTED
    if state == "terminated" and code == RELEASED:
        return EndCause.RELEASED
    return EndCause.FAILED


def _ended_at(item: Mapping[str, Any]) -> datetime | None:
    told = _ENDED_AT.search(str(item.get("StateTransitionReason", "")))
    if told is None:
        return None
    return datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
