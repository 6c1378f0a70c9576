"""An instance as Compute Engine describes it, read as a node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt_gcp import labels

STATES = {
    # Waits for capacity on flex-start.
    "PENDING": NodeState.WAITING,
    "PROVISIONING": NodeState.PENDING,
    "STAGING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "REPAIRING": NodeState.STOPPING,
    "PENDING_STOP": NodeState.STOPPING,
    "STOPPING": NodeState.STOPPING,
    "SUSPENDING": NodeState.STOPPING,
    # A node that switched itself off or was stopped by hand trains no more; its disk is left.
    "SUSPENDED": NodeState.ENDED,
    "TERMINATED": NodeState.ENDED,
}
"""https://cloud.google.com/compute/docs/instances/instance-lifecycle"""


def read_node(item: Any) -> Node | None:
    """An instance of the client library; None where its metadata is not that of a node."""
    told = {entry.key: entry.value for entry in item.metadata.items}
    pool, price = _pool(told.get(labels.POOL, "")), _price(told.get(labels.PRICE, ""))
    created_at = time_of(item.creation_timestamp)
    if pool is None or price is None or created_at is None or labels.KEY not in told:
        return None
    state = STATES.get(item.status, NodeState.RUNNING)
    if pool.capacity_type is CapacityType.FLEX_START:
        state, created_at = _on_flex_start(item, state, created_at)
    ended = state is NodeState.ENDED
    return Node(
        node_id=item.name,
        owner=told.get(labels.OWNER, ""),
        job=told.get(labels.JOB, ""),
        pool=pool,
        key=told[labels.KEY],
        state=state,
        launched_at=created_at,
        usd_per_hour=price,
        ended_at=time_of(item.last_stop_timestamp) if ended else None,
        end_cause=EndCause.FAILED if ended else None,
        message=str(item.status_message) if ended else "",
    )


def _on_flex_start(item: Any, state: NodeState, created_at: datetime) -> tuple[NodeState, datetime]:
    """Its state, and since when it runs: it is charged for from then on."""
    if state is NodeState.PENDING:
        return NodeState.WAITING, created_at
    return state, time_of(item.last_start_timestamp) or created_at


def time_of(text: str) -> datetime | None:
    """An RFC 3339 time, aware UTC; None where there is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None


def _pool(text: str) -> Pool | None:
    try:
        return Pool.parse(text)
    except ValueError:
        return None


def _price(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
