"""Termination of nodes, and removal of what launches leave behind.

Orphaned resources are volumes, launch templates, placement groups and stopped instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from costopt.domain.errors import BadRequestError, ProviderError, ProviderUnavailableError
from costopt.domain.fleet import Node
from costopt.provider.base import OrphanedResource
from costopt.provider.cache import fan_out, raise_if_none, split_answers
from costopt.provider.node_book import GRACE, NodeBook
from costopt_aws import instances
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instances import InstanceInventory
from costopt_aws.notices import InterruptionQueue

ALREADY_GONE_CODES = frozenset({"InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound"})


class InstanceTerminator:
    """TerminateInstances. Only the listings, not this class, report that a node is gone."""

    def __init__(
        self, clients: Clients, regions: tuple[str, ...], book: NodeBook, notices: InterruptionQueue
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._book = book
        self._notices = notices

    def terminate(self, node_id: str, now: datetime) -> None:
        """Terminate a node; do nothing if it is missing or has ended. Raise ProviderError.

        A spot node that EC2 is about to interrupt in its first hour is left to EC2, for then it
        costs nothing; one still alive two minutes after its announced end is terminated.
        """
        node = self._book.node(node_id)
        if node is None:
            self._terminate_anywhere(node_id)
        elif node.state.is_alive and not self._notices.is_unbilled_interruption(node, now):
            self._terminate_known(node, now)

    def _terminate_known(self, node: Node, now: datetime) -> None:
        there = self._terminate(node.pool.region, node.node_id)
        if not there and now - node.launched_at <= GRACE:
            raise ProviderUnavailableError(
                f"{node.pool.region}: {node.node_id} is so new that EC2 does not find it yet"
            )

    def _terminate_anywhere(self, node_id: str) -> None:
        results = fan_out(self._regions, lambda region: self._terminate(region, node_id))
        failed = [result for result in results.values() if isinstance(result, ProviderError)]
        if failed and True not in results.values():
            raise failed[0]

    def _terminate(self, region: str, node_id: str) -> bool:
        """Terminate the instance; return whether the region knows it."""
        try:
            with map_errors("ec2:TerminateInstances", f"{region}: {node_id}"):
                self._clients.reading("ec2", region).terminate_instances(InstanceIds=[node_id])
        except BadRequestError as error:
            if code_of(error) not in ALREADY_GONE_CODES:
                raise
            return False
        return True


VOLUME = "volume"
TEMPLATE = "launch template"
GROUP = "placement group"
STOPPED = "stopped instance"
MISSING = frozenset(
    {
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidPlacementGroup.Unknown",
        "InvalidVolume.NotFound",
    }
)


class OrphanedResources:
    """Implements the Cleanable port."""

    def __init__(
        self, clients: Clients, regions: tuple[str, ...], listing: InstanceInventory
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._listing = listing
        self.silent: Mapping[str, ProviderError] = {}
        """The regions that did not answer the last time, and what went wrong."""

    def list_all(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Return those of all regions that answer. Raise ProviderError if none does."""
        results = fan_out(self._regions, lambda region: tuple(self._of_region(region, owner)))
        known, self.silent = split_answers(results)
        raise_if_none(known, self.silent)
        return tuple(orphan for found in known.values() for orphan in found)

    def remove(self, orphan: OrphanedResource) -> None:
        """Remove it; do nothing if it is gone. Raise ProviderError."""
        region = orphan.place.rpartition("/")[2]
        client = self._clients.reading("ec2", region)
        action, call = _removal(client, orphan)
        try:
            with map_errors(action, f"{region}: {orphan.kind} {orphan.name}"):
                call()
        except BadRequestError as error:
            if code_of(error) not in MISSING:
                raise

    def _of_region(self, region: str, owner: str) -> Iterator[OrphanedResource]:
        owned = instances.owner_filter(owner)
        for item in self._pages(region, "Volumes", [owned, _filter("status", "available")]):
            yield _orphan(VOLUME, item["VolumeId"], region, item, item["CreateTime"])
        for item in self._pages(region, "LaunchTemplates", [owned]):
            name = item["LaunchTemplateName"]
            yield _orphan(TEMPLATE, name, region, item, item["CreateTime"])
        with map_errors("ec2:DescribePlacementGroups", region):
            response = self._clients.reading("ec2", region).describe_placement_groups(
                Filters=[owned]
            )
            groups = response["PlacementGroups"]
        for item in groups:
            yield _orphan(GROUP, item["GroupName"], region, item, None)
        for item in self._listing.items(region, [owned, _filter("instance-state-name", "stopped")]):
            yield _orphan(STOPPED, item["InstanceId"], region, item, item["LaunchTime"])

    def _pages(self, region: str, kinds: str, filters: list[dict[str, object]]) -> list[Any]:
        """Return all that Describe<kinds> lists."""
        operation = {"Volumes": "describe_volumes", "LaunchTemplates": "describe_launch_templates"}
        with map_errors(f"ec2:Describe{kinds}", region):
            client = self._clients.reading("ec2", region)
            pages = client.get_paginator(operation[kinds]).paginate(Filters=filters)
            return [item for page in pages for item in page[kinds]]


def _filter(name: str, value: str) -> dict[str, object]:
    return {"Name": name, "Values": [value]}


def _orphan(
    kind: str, name: str, region: str, item: Mapping[str, Any], created_at: datetime | None
) -> OrphanedResource:
    named = kind in (TEMPLATE, GROUP)
    return OrphanedResource(
        kind=kind,
        name=name,
        place=f"aws/{region}",
        job=instances.parse_tags(item.get("Tags", ())).get(instances.JOB, ""),
        created_at=None if created_at is None else created_at.astimezone(UTC),
        usd_per_hour=0.0 if named else None,
        serves_job=named,
    )


def _removal(client: Any, orphan: OrphanedResource) -> tuple[str, Callable[[], object]]:
    """Return the IAM action that the removal needs, and the call."""
    name = orphan.name
    match orphan.kind:
        case "volume":
            return "ec2:DeleteVolume", lambda: client.delete_volume(VolumeId=name)
        case "launch template":
            return (
                "ec2:DeleteLaunchTemplate",
                lambda: client.delete_launch_template(LaunchTemplateName=name),
            )
        case "placement group":
            return (
                "ec2:DeletePlacementGroup",
                lambda: client.delete_placement_group(GroupName=name),
            )
        case "stopped instance":
            return (
                "ec2:TerminateInstances",
                lambda: client.terminate_instances(InstanceIds=[name]),
            )
    raise BadRequestError(f"{orphan.place}: {orphan.kind!r} is nothing that is removed here")
