"""The instances that EC2 lists by region, read as nodes, and the tags of costopt's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.provider.cache import fan_out, raise_if_none, split_answers
from costopt.provider.node_book import GRACE, NodeBook
from costopt.provider.tags import NodeTags
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

STATES = {
    "pending": NodeState.PENDING,
    "running": NodeState.RUNNING,
    "shutting-down": NodeState.STOPPING,
    "stopping": NodeState.STOPPING,
    # Nodes terminate when they shut down; one that was stopped by hand trains no more.
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
    """Return the node of an entry of DescribeInstances; None if its tags are not a node's.

    ``ended_at`` is None if EC2 does not report when the node ended.
    """
    tags = NodeTags.parse(parse_tags(item.get("Tags", ())), PREFIX)
    if tags is None:
        return None
    state = STATES[item["State"]["Name"]]
    launched_at = item["LaunchTime"].astimezone(UTC)
    if state is not NodeState.ENDED:
        return tags.node(item["InstanceId"], state, launched_at)
    reason = item.get("StateReason", {})
    cause = _cause(item["State"]["Name"], str(reason.get("Code", "")))
    end = cause, str(reason.get("Message", ""))
    return tags.node(item["InstanceId"], state, launched_at, _ended_at(item), end)


def _cause(state: str, code: str) -> EndCause:
    if code in TAKEN:
        return EndCause.INTERRUPTED
    if state == "terminated" and code == RELEASED:
        return EndCause.RELEASED
    return EndCause.FAILED


def _ended_at(item: Mapping[str, Any]) -> datetime | None:
    match = _ENDED_AT.search(str(item.get("StateTransitionReason", "")))
    if match is None:
        return None
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


PAGE = 1000


class InstanceInventory:
    """DescribeInstances is the truth; an unreachable region keeps its last answer."""

    def __init__(self, clients: Clients, regions: tuple[str, ...], book: NodeBook) -> None:
        self._clients = clients
        self._regions = regions
        self._book = book
        self.silent: Mapping[str, ProviderError] = {}
        """The regions that did not answer the last time, and what went wrong."""

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Return every node of the owner; ended nodes for two hours.

        Raise ProviderError if no region answers.
        """
        owned = [owner_filter(owner)]
        results = fan_out(self._regions, lambda region: self.find(region, owned))
        known, self.silent = split_answers(results)
        raise_if_none(known, self.silent)
        nodes = [node for nodes in known.values() for node in nodes]
        listed = {node.node_id for node in self._book.see(nodes, now)}
        missing = self._book.missing(owner, listed, self.silent)
        gone = [node for node in missing if now - node.launched_at > GRACE]
        self._book.end(gone, None, EndCause.LOST, "EC2 does not list it any more", now)
        self._book.forget(now)
        return self._book.known(owner)

    def find(self, region: str, filters: list[dict[str, object]]) -> tuple[Node, ...]:
        """Return the nodes among the instances that match. Raise ProviderError."""
        items = self.items(region, filters)
        with map_errors("ec2:DescribeInstances", region):
            return tuple(filter(None, (read_node(item) for item in items)))

    def items(self, region: str, filters: list[dict[str, object]]) -> list[Mapping[str, Any]]:
        """Return the entries of DescribeInstances. Raise ProviderError."""
        with map_errors("ec2:DescribeInstances", region):
            pages = (
                self._clients.reading("ec2", region)
                .get_paginator("describe_instances")
                .paginate(Filters=filters, PaginationConfig={"PageSize": PAGE})
            )
            return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]


PREFIX = "costopt:"
OWNER = f"{PREFIX}owner"
JOB = f"{PREFIX}job"
KEY = f"{PREFIX}key"

LAUNCHED = ("instance", "network-interface", "volume")
"""What a launch makes and tags, as EC2 names the kinds."""

Tags = list[dict[str, str]]


def make_tags(owner: str, job: str | None = None) -> Tags:
    """Return the tags of what is made for an owner's job, for the API."""
    of_job = [] if job is None else [{"Key": JOB, "Value": job}]
    return [{"Key": OWNER, "Value": owner}, *of_job]


def parse_tags(listed: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the tags of an answer as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in listed}


def owner_filter(owner: str) -> dict[str, object]:
    """Return the filter of a Describe call for resources with this owner tag."""
    return {"Name": f"tag:{OWNER}", "Values": [_literal(owner)]}


def launch_key_filter(key: str) -> dict[str, object]:
    """Return the filter of a Describe call for the nodes of one launch."""
    return {"Name": f"tag:{KEY}", "Values": [_literal(key)]}


def _literal(value: str) -> str:
    """Escape * and ?, which are wildcards in EC2's filters."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")
