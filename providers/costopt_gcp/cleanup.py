"""Termination of nodes, and removal of what launches leave behind.

Orphaned resources are disks, templates, placement policies and stopped instances.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt.provider.base import OrphanedResource
from costopt.provider.node_book import GRACE, NodeBook
from costopt.provider.tags import time_of
from costopt_gcp import instances
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of
from costopt_gcp.inventory import InstanceInventory
from costopt_gcp.machine_types import last, region_of

PERMISSION = "compute.instances.delete"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class InstanceTerminator:
    """instances.delete. Only the listings, not this class, report that a node is gone."""

    def __init__(self, clients: Clients, book: NodeBook) -> None:
        self._clients = clients
        self._book = book

    def terminate(self, node_id: str, now: datetime) -> None:
        """Terminate a node; do nothing if it is missing or has ended. Raise ProviderError."""
        node = self._book.node(node_id)
        if node is None:
            if _NAME.fullmatch(node_id):
                for zone in self._zones_of(node_id):
                    self.delete(zone, node_id)
        elif node.state.is_alive:
            there = self.delete(node.pool.zone, node_id)
            if not there and now - node.launched_at <= GRACE and self._zones_of(node_id):
                raise ProviderUnavailableError(
                    f"{node.pool.zone}: {node_id} is so new that it is not found yet"
                )

    def delete(self, zone: str, name: str) -> bool:
        """Delete the instance; return whether the zone knows it. Raise ProviderError."""
        client = self._clients.of("instances")
        return removed(
            lambda: client.delete_unary(
                project=self._clients.project, zone=zone, instance=name, **self._clients.once()
            ),
            PERMISSION,
            f"{zone}: {name}",
        )

    def _zones_of(self, name: str) -> list[str]:
        request = {"project": self._clients.project, "filter": f'name = "{name}"'}
        with asking("compute.instances.list", name):
            pages = self._clients.of("instances").aggregated_list(
                request=request, **self._clients.reading()
            )
            return [last(scope) for scope, scoped in pages if scoped.instances]


def removed(call: Callable[[], object], permission: str, about: str) -> bool:
    """Return whether there was something to remove. Raise ProviderError."""
    try:
        with asking(permission, about):
            call()
    except BadRequestError as error:
        if code_of(error) not in MISSING:
            raise
        return False
    return True


DISK = "disk"
TEMPLATE = "instance template"
PLACEMENT = "placement policy"
STOPPED = "stopped instance"
PLACE = "gcp/"
EVERYWHERE = "global"


class OrphanedResources:
    """Implements the Cleanable port. A place is "gcp/" and a zone or region, or "gcp/global"."""

    def __init__(
        self,
        clients: Clients,
        regions: tuple[str, ...],
        listing: InstanceInventory,
        stopping: InstanceTerminator,
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._listing = listing
        self._stopping = stopping

    def list_all(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Return those of all regions in use. Raise ProviderError."""
        return (
            *self._disks(owner),
            *self._templates(owner),
            *self._placements(owner),
            *self._stopped(owner),
        )

    def remove(self, orphan: OrphanedResource) -> None:
        """Remove it; do nothing if it is gone. Raise ProviderError."""
        zone, name = orphan.place.removeprefix(PLACE), orphan.name
        if orphan.kind == STOPPED:
            self._stopping.delete(zone, name)
            return
        permission, call = self._removal(orphan.kind, zone, name)
        removed(call, permission, f"{orphan.place}: {orphan.kind} {name}")

    def _removal(self, kind: str, zone: str, name: str) -> tuple[str, Callable[[], object]]:
        """Return the permission that the removal needs, and the call."""
        project, once = self._clients.project, self._clients.once()
        match kind:
            case "disk":
                disks = self._clients.of("disks")
                return "compute.disks.delete", lambda: disks.delete_unary(
                    project=project, zone=zone, disk=name, **once
                )
            case "instance template":
                templates = self._clients.of("instance_templates")
                return "compute.instanceTemplates.delete", lambda: templates.delete_unary(
                    project=project, instance_template=name, **once
                )
            case "placement policy":
                policies = self._clients.of("resource_policies")
                return "compute.resourcePolicies.delete", lambda: policies.delete_unary(
                    project=project, region=zone, resource_policy=name, **once
                )
        raise BadRequestError(f"{PLACE}{zone}: {kind!r} is nothing that is removed here")

    def _disks(self, owner: str) -> Iterator[OrphanedResource]:
        """Yield disks that no instance uses: boot disks are deleted with their nodes."""
        request = {"project": self._clients.project, "filter": instances.owned_by(owner)}
        with asking("compute.disks.list", "all zones"):
            pages = self._clients.of("disks").aggregated_list(
                request=request, **self._clients.reading()
            )
            found = [(last(scope), disk) for scope, scoped in pages for disk in scoped.disks]
        for zone, disk in found:
            if region_of(zone) in self._regions and not disk.users:
                yield _orphan(DISK, disk.name, zone, disk.labels, disk.creation_timestamp)

    def _templates(self, owner: str) -> Iterator[OrphanedResource]:
        """Yield templates of Terraform modules or older versions: launches create none."""
        request = {
            "project": self._clients.project,
            "filter": f"properties.{instances.owned_by(owner)}",
        }
        with asking("compute.instanceTemplates.list", EVERYWHERE):
            found = list(
                self._clients.of("instance_templates").list(
                    request=request, **self._clients.reading()
                )
            )
        for item in found:
            labels = item.properties.labels
            yield _orphan(TEMPLATE, item.name, EVERYWHERE, labels, item.creation_timestamp)

    def _placements(self, owner: str) -> Iterator[OrphanedResource]:
        with asking("compute.resourcePolicies.list", "all regions"):
            pages = self._clients.of("resource_policies").aggregated_list(
                request={"project": self._clients.project}, **self._clients.reading()
            )
            found = [(last(where), p) for where, scoped in pages for p in scoped.resource_policies]
        for region, policy in found:
            labels = instances.described(policy.description)
            if region in self._regions and labels.get(instances.OWNER) == owner:
                yield _orphan(PLACEMENT, policy.name, region, labels, policy.creation_timestamp)

    def _stopped(self, owner: str) -> Iterator[OrphanedResource]:
        for item in self._listing.stopped(owner):
            zone = last(item.zone)
            yield _orphan(STOPPED, item.name, zone, item.labels, item.creation_timestamp)


def _orphan(kind: str, name: str, zone: str, labels: Any, created: str) -> OrphanedResource:
    named = kind in (TEMPLATE, PLACEMENT)
    created_at: datetime | None = time_of(created)
    return OrphanedResource(
        kind=kind,
        name=name,
        place=PLACE + zone,
        job=labels.get(instances.JOB, ""),
        created_at=created_at,
        usd_per_hour=0.0 if named else None,
        serves_job=named,
    )
