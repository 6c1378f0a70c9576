"""The parameters of one instances.bulkInsert or instances.insert call, and compact placement.

Compact placement puts the nodes of a gang close to each other.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.fleet import MAX_RUN, MAX_WAIT, LaunchRequest
from costopt.domain.market import CapacityType, Reservation
from costopt.provider.tags import NodeTags
from costopt_gcp import instances
from costopt_gcp.bootstrap import NodeSetup
from costopt_gcp.clients import Clients
from costopt_gcp.errors import EXISTS, asking, code_of
from costopt_gcp.machine_types import MachineShape, family
from costopt_gcp.operations import Operations

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
RESERVATION_NAME = "compute.googleapis.com/reservation-name"
NO_DISK_CHOICE = frozenset({"a4", "a4x", "n4", "c4"})
"""Series that boot from Hyperdisk only (cloud.google.com/compute/docs/disks/hyperdisks)."""


@dataclass(frozen=True, slots=True)
class InsertRequest:
    """A launch request for Compute Engine.

    ``notice_s``: how long before its end a Spot node gets notice, None for Google's default.
    ``attempt`` counts the operations of this request that failed. ``placement`` is the name of the
    placement policy of the gang; ``reservation`` is for reserved capacity.
    """

    project: str
    request: LaunchRequest
    setup: NodeSetup
    shape: MachineShape
    usd_per_hour: float
    notice_s: int | None = None
    attempt: int = 0
    placement: str | None = None
    reservation: Reservation | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the request: all nodes or none, and none twice.

        If fewer than ``min_count`` are available, Google deletes those that it made
        (cloud.google.com/compute/docs/reference/rest/v1/instances/bulkInsert).
        """
        request = self.request
        asked = {
            "project": self.project,
            "zone": request.pool.zone,
            "request_id": request_id(request, self.attempt),
        }
        if request.pool.capacity_type is CapacityType.FLEX_START:
            return asked | {"instance_resource": self._waiting()}
        return asked | {
            "bulk_insert_instance_resource_resource": {
                "count": request.nodes,
                "min_count": request.nodes,
                "per_instance_properties": {
                    name: {"name": name} for name in instances.node_names(request)
                },
                "instance_properties": self._properties(),
            }
        }

    def _waiting(self) -> dict[str, Any]:
        """Return the request of one instance that waits for capacity, which bulkInsert cannot.

        Raise BadRequestError for a gang. InstanceParams.request_valid_for_duration is "relevant
        only for Instances.Insert", and no reservation may be used
        (docs.cloud.google.com/compute/docs/instances/create-flex-start-vm).
        """
        request = self.request
        if request.nodes != 1:
            raise BadRequestError(
                f"{request.pool}: flex-start nodes are launched one by one, not {request.nodes}"
            )
        properties = self._properties()
        zone = f"zones/{request.pool.zone}"
        disk = properties["disks"][0]["initialize_params"]
        disk["disk_type"] = f"{zone}/diskTypes/{disk['disk_type']}"
        return properties | {
            "name": instances.node_names(request)[0],
            "machine_type": f"{zone}/machineTypes/{properties['machine_type']}",
            "params": {"request_valid_for_duration": {"seconds": _seconds(MAX_WAIT)}},
            "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
        }

    def _properties(self) -> dict[str, Any]:
        shape = self.shape
        named = instances.labels(self.request.owner, self.request.job, self.request.key)
        properties: dict[str, Any] = {
            "machine_type": shape.machine_type,
            "labels": named,
            "metadata": {"items": self._metadata()},
            "scheduling": self._scheduling(),
            "disks": [self._disk(named)],
            "network_interfaces": [self._network()],
        }
        if shape.accelerator is not None:
            properties["guest_accelerators"] = [
                {"accelerator_type": shape.accelerator, "accelerator_count": shape.accelerators}
            ]
        if self.placement is not None:
            properties["resource_policies"] = [self.placement]
        if self.reservation is not None:
            properties["reservation_affinity"] = {
                "consume_reservation_type": "SPECIFIC_RESERVATION",
                "key": RESERVATION_NAME,
                "values": [self.reservation.name],
            }
        if self.setup.service_account is not None:
            properties["service_accounts"] = [
                {"email": self.setup.service_account, "scopes": [CLOUD_PLATFORM]}
            ]
        return properties

    def _metadata(self) -> list[dict[str, str]]:
        entries = {
            **NodeTags.of_request(self.request, self.usd_per_hour).texts(instances.NAMES),
            "startup-script": self.setup.startup_script,
            # The Deep Learning VM asks on its first boot whether to, and waits for an answer.
            "install-nvidia-driver": "True",
        }
        return [{"key": key, "value": value} for key, value in entries.items()]

    def _scheduling(self) -> dict[str, Any]:
        """Return the scheduling: GPUs cannot migrate; costopt replaces a crashed node."""
        scheduling: dict[str, Any] = {
            "provisioning_model": "STANDARD",
            "on_host_maintenance": "TERMINATE",
            "automatic_restart": False,
        }
        if self.request.pool.capacity_type is CapacityType.SPOT:
            scheduling |= {"provisioning_model": "SPOT", "instance_termination_action": "DELETE"}
            if self.notice_s is not None:
                scheduling["preemption_notice_duration"] = {"seconds": self.notice_s}
        elif self.request.pool.capacity_type is CapacityType.FLEX_START:
            scheduling |= {
                "provisioning_model": "FLEX_START",
                "instance_termination_action": "DELETE",
                "max_run_duration": {"seconds": _seconds(MAX_RUN)},
            }
        elif self.reservation is not None and self.reservation.bound:
            scheduling |= {
                "provisioning_model": "RESERVATION_BOUND",
                "instance_termination_action": "DELETE",
            }
        return scheduling

    def _disk(self, named: dict[str, str]) -> dict[str, Any]:
        setup = self.setup
        own = self.request.pool.instance_type.partition("-")[0] in NO_DISK_CHOICE
        return {
            "boot": True,
            "auto_delete": True,
            "initialize_params": {
                "source_image": setup.image,
                "disk_size_gb": setup.root_gib,
                "disk_type": "hyperdisk-balanced" if own else setup.disk_type,
                "labels": named,
            },
        }

    def _network(self) -> dict[str, Any]:
        setup = self.setup
        interface: dict[str, Any] = {"network": setup.network}
        if setup.subnetwork is not None:
            interface = {"subnetwork": setup.subnetwork}
        if setup.external_ip:
            interface["access_configs"] = [{"type_": "ONE_TO_ONE_NAT", "name": "External NAT"}]
        return interface


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())


def request_id(request: LaunchRequest, attempt: int) -> str:
    """Return the UUID under which Google makes a launch once, however often it is requested.

    The UUID of a failed operation only returns its failure again, so the next attempt has another.
    The names of the instances limit all attempts to one launch.
    """
    named = f"{request.owner}/{request.key}/{request.pool}/{request.nodes}/{attempt}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"costopt:{named}"))


SERIES = frozenset({"a2", "a3", "a4", "a4x", "g2", "g4"})
"""Those with GPUs that can be placed compactly
(docs.cloud.google.com/ai-hypercomputer/docs/placement-policy-and-workload-policy)."""
PERMISSION = "compute.resourcePolicies.create"


class PlacementMode(StrEnum):
    """Whether gangs are to be placed compactly: PREFERRED ones are launched apart if need be."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    OFF = "off"


class CompactPlacement:
    """One placement policy for each job and zone, without a greatest distance.

    Google makes nodes of one policy as close to each other as it can at that time.
    """

    def __init__(self, clients: Clients, operations: Operations, wanted: PlacementMode) -> None:
        self._clients = clients
        self._operations = operations
        self._wanted = wanted
        self._apart: dict[str, str] = {}

    @property
    def apart(self) -> Mapping[str, str]:
        """Return the zones where the last gang was not placed compactly, and why."""
        return dict(self._apart)

    def policy(self, request: LaunchRequest, attempt: int) -> str | None:
        """Return the name of the policy for these nodes, created if missing; None for no policy.

        An optional policy is only requested at the first attempt, so that another controller makes
        the same attempts. Raise ProviderError if a policy is required and cannot be created.
        """
        pool = request.pool
        close = request.nodes > 1 and family(pool.instance_type) in SERIES
        # The placement of reserved nodes was decided when they were reserved.
        close = close and pool.capacity_type is not CapacityType.RESERVED
        if not close or self._wanted is PlacementMode.OFF:
            return None
        if attempt and self._wanted is PlacementMode.PREFERRED:
            return None
        self._apart.pop(pool.zone, None)
        try:
            return self._ensure(request)
        except ProviderError as error:
            if not self.dispensable(request, error):
                raise
            return None

    def dispensable(self, request: LaunchRequest, error: ProviderError) -> bool:
        """Return whether a gang refused with a policy may do without; record the reason."""
        if self._wanted is PlacementMode.REQUIRED:
            return False
        self._apart[request.pool.zone] = f"the nodes are not placed compactly: {error.message}"
        return True

    def _ensure(self, request: LaunchRequest) -> str:
        """Create the policy; creating one again changes nothing."""
        region, name = request.pool.region, _name(request)
        client = self._clients.of("resource_policies")
        asked = {
            "name": name,
            "description": instances.description(request.owner, request.job),
            "group_placement_policy": {"collocation": "COLLOCATED"},
        }
        try:
            with asking(PERMISSION, region):
                operation = client.insert_unary(
                    project=self._clients.project,
                    region=region,
                    resource_policy_resource=asked,
                    **self._clients.once(),
                )
        except BadRequestError as error:
            if code_of(error) not in EXISTS:
                raise
        else:
            self._operations.finished(operation, region, PERMISSION, region)
        return name


def _name(request: LaunchRequest) -> str:
    said = f"{request.owner}/{request.job}/{request.pool.zone}"
    return "costopt-" + hashlib.sha256(said.encode()).hexdigest()[:24]
