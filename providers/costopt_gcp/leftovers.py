"""What launches leave behind: disks, templates, placement policies, stopped instances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.provider.base import OrphanedResource
from costopt_gcp import labels
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.instance import time_of
from costopt_gcp.listing import InstanceInventory
from costopt_gcp.shape import last, region_of
from costopt_gcp.stopping import InstanceTerminator, removed

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
        """Those of all regions in use. Raises ProviderError."""
        return (
            *self._disks(owner),
            *self._templates(owner),
            *self._placements(owner),
            *self._stopped(owner),
        )

    def remove(self, leftover: OrphanedResource) -> None:
        """Remove it; silent where it is gone. Raises ProviderError."""
        zone, name = leftover.place.removeprefix(PLACE), leftover.name
        if leftover.kind == STOPPED:
            self._stopping.delete(zone, name)
            return
        permission, call = self._removal(leftover.kind, zone, name)
        removed(call, permission, f"{leftover.place}: {leftover.kind} {name}")

    def _removal(self, kind: str, zone: str, name: str) -> tuple[str, Callable[[], object]]:
        """The permission that it takes, and the call."""
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
        """Disks that no instance uses: those of nodes go with them."""
        request = {"project": self._clients.project, "filter": labels.owned_by(owner)}
        with asking("compute.disks.list", "all zones"):
            pages = self._clients.of("disks").aggregated_list(
                request=request, **self._clients.reading()
            )
            found = [(last(scope), disk) for scope, scoped in pages for disk in scoped.disks]
        for zone, disk in found:
            if region_of(zone) in self._regions and not disk.users:
                yield _leftover(DISK, disk.name, zone, disk.labels, disk.creation_timestamp)

    def _templates(self, owner: str) -> Iterator[OrphanedResource]:
        """Of Terraform modules or older versions: launches themselves make none."""
        request = {
            "project": self._clients.project,
            "filter": f"properties.{labels.owned_by(owner)}",
        }
        with asking("compute.instanceTemplates.list", EVERYWHERE):
            found = list(
                self._clients.of("instance_templates").list(
                    request=request, **self._clients.reading()
                )
            )
        for item in found:
            told = item.properties.labels
            yield _leftover(TEMPLATE, item.name, EVERYWHERE, told, item.creation_timestamp)

    def _placements(self, owner: str) -> Iterator[OrphanedResource]:
        with asking("compute.resourcePolicies.list", "all regions"):
            pages = self._clients.of("resource_policies").aggregated_list(
                request={"project": self._clients.project}, **self._clients.reading()
            )
            found = [(last(where), p) for where, scoped in pages for p in scoped.resource_policies]
        for region, policy in found:
            told = labels.described(policy.description)
            if region in self._regions and told.get(labels.OWNER) == owner:
                yield _leftover(PLACEMENT, policy.name, region, told, policy.creation_timestamp)

    def _stopped(self, owner: str) -> Iterator[OrphanedResource]:
        for item in self._listing.stopped(owner):
            zone = last(item.zone)
            yield _leftover(STOPPED, item.name, zone, item.labels, item.creation_timestamp)


def _leftover(kind: str, name: str, zone: str, told: Any, created: str) -> OrphanedResource:
    named = kind in (TEMPLATE, PLACEMENT)
    created_at: datetime | None = time_of(created)
    return OrphanedResource(
        kind=kind,
        name=name,
        place=PLACE + zone,
        job=told.get(labels.JOB, ""),
        created_at=created_at,
        usd_per_hour=0.0 if named else None,
        serves_job=named,
    )
