"""Instances of Compute Engine, read as nodes; the labels and metadata that mark costopt's own.

Labels can be filtered by and hold little: 63 lower-case letters, digits, dashes and underscores
(cloud.google.com/compute/docs/labeling-resources). So they hold what is looked for, and an
instance's metadata holds the whole of it. None of it is secret: the node can read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType
from costopt.provider.tags import NodeTags, fitted_label, short_digest, time_of

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
    """Return the node of an instance; None if its metadata is not that of a node."""
    tags = NodeTags.parse({entry.key: entry.value for entry in item.metadata.items}, NAMES)
    created_at = time_of(item.creation_timestamp)
    if tags is None or created_at is None:
        return None
    state = STATES.get(item.status, NodeState.RUNNING)
    if tags.pool.capacity_type is CapacityType.FLEX_START:
        state, created_at = _on_flex_start(item, state, created_at)
    if state is not NodeState.ENDED:
        return tags.node(item.name, state, created_at)
    end = EndCause.FAILED, str(item.status_message)
    return tags.node(item.name, state, created_at, time_of(item.last_stop_timestamp), end)


def _on_flex_start(item: Any, state: NodeState, created_at: datetime) -> tuple[NodeState, datetime]:
    """Return its state, and since when it runs: it is billed from then on."""
    if state is NodeState.PENDING:
        return NodeState.WAITING, created_at
    return state, time_of(item.last_start_timestamp) or created_at


OWNER = "costopt-owner"
JOB = "costopt-job"
KEY = "costopt-key"

NAMES = "costopt-"
"""What the names of all instances begin with, and those of their boot disks, which are the same."""

_FITS = re.compile(r"[a-z0-9][a-z0-9_-]*")


def label(value: str) -> str:
    """Return the value as a label holds it; see ``fitted_label``."""
    return fitted_label(value, _FITS, re.sub(r"[^a-z0-9_-]", "-", value.lower()))


def labels(owner: str, job: str, key: str | None = None) -> dict[str, str]:
    """Of everything that is made for a job; with ``key`` of what one launch makes."""
    found = {OWNER: label(owner), JOB: label(job)}
    return found if key is None else {**found, KEY: label(key)}


def description(owner: str, job: str) -> str:
    """Of what can have no labels, such as placement policies."""
    return json.dumps({OWNER: owner, JOB: job}, sort_keys=True)


def described(text: str) -> Mapping[str, str]:
    """The inverse of ``description``; nothing where the text is another's."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def owned_by(owner: str) -> str:
    """Return the filter of a list call for resources with this owner's label."""
    return f'labels.{OWNER} = "{label(owner)}"'


def launched_by(owner: str, key: str) -> str:
    """The filter of a list call for the nodes of one launch."""
    return f'({owned_by(owner)}) AND (labels.{KEY} = "{label(key)}")'


def node_names(request: LaunchRequest) -> tuple[str, ...]:
    """Return the names of a launch's instances, which follow from its owner and key.

    A zone has one instance of a name, so a launch cannot happen twice under the same key.
    """
    digest = short_digest(f"{request.owner}/{request.key}", 20)
    return tuple(f"{NAMES}{digest}-{rank}" for rank in range(request.nodes))


def metadata(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """An instance's metadata as a mapping."""
    return {item["key"]: item.get("value", "") for item in items}
