"""The parameters of one RunInstances call, and cluster placement groups.

A cluster placement group puts the nodes of a gang close to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType
from costopt.provider.tags import NodeTags
from costopt_aws.bootstrap import NodeSetup
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instances import LAUNCHED, PREFIX, make_tags

NAME_LIMIT = 255


@dataclass(frozen=True, slots=True)
class RunInstancesRequest:
    """A launch request for EC2. ``zone_name`` is the account's name of the zone.

    ``placement_group`` and ``efa_interfaces`` are for gangs whose type has the Elastic Fabric
    Adapter; ``reservation_id`` for reserved capacity.
    """

    request: LaunchRequest
    setup: NodeSetup
    template: str
    zone_name: str
    subnet_id: str | None
    usd_per_hour: float
    placement_group: str | None = None
    efa_interfaces: int = 0
    reservation_id: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of RunInstances: all nodes or none, and none twice."""
        request = self.request
        return {
            "ClientToken": client_token(request),
            "LaunchTemplate": {"LaunchTemplateName": self.template, "Version": "$Latest"},
            "InstanceType": request.pool.instance_type,
            "MinCount": request.nodes,
            "MaxCount": request.nodes,
            "Placement": self._placement(),
            "TagSpecifications": self._tags(),
            **self._market(),
            **self._network(),
        }

    def _placement(self) -> dict[str, str]:
        placement = {"AvailabilityZone": self.zone_name}
        if self.placement_group is not None:
            placement["GroupName"] = self.placement_group
        return placement

    def _tags(self) -> list[Mapping[str, object]]:
        own = NodeTags.of_request(self.request, self.usd_per_hour).texts(PREFIX)
        named = {**own, "Name": f"costopt {self.request.job}"[:NAME_LIMIT]}
        tags = [{"Key": key, "Value": value} for key, value in named.items()]
        return [{"ResourceType": kind, "Tags": tags} for kind in LAUNCHED]

    def _market(self) -> dict[str, Any]:
        """Return the market options; a price limit on spot would only add interruptions."""
        match self.request.pool.capacity_type:
            case CapacityType.SPOT:
                options = {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                }
                return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}
            case CapacityType.RESERVED:
                target = {"CapacityReservationId": self.reservation_id}
                return {
                    "InstanceMarketOptions": {"MarketType": "capacity-block"},
                    "CapacityReservationSpecification": {"CapacityReservationTarget": target},
                }
            case CapacityType.ON_DEMAND:
                return {}
            case CapacityType.FLEX_START:
                raise BadRequestError(f"{self.request.pool}: AWS rents nothing on flex-start")

    def _network(self) -> dict[str, Any]:
        subnet = {} if self.subnet_id is None else {"SubnetId": self.subnet_id}
        groups = list(self.setup.security_group_ids)
        if not self.efa_interfaces:
            return {**subnet, **({"SecurityGroupIds": groups} if groups else {})}
        return {
            "NetworkInterfaces": [
                {
                    "NetworkCardIndex": card,
                    "DeviceIndex": min(card, 1),
                    # Only the first carries IP traffic; the others need no address.
                    "InterfaceType": "efa" if card == 0 else "efa-only",
                    "DeleteOnTermination": True,
                    **subnet,
                    **({"Groups": groups} if groups else {}),
                }
                for card in range(self.efa_interfaces)
            ]
        }


def client_token(request: LaunchRequest) -> str:
    """Return the launch's client token of 64 characters, EC2's maximum."""
    return hashlib.sha256(f"{request.owner}/{request.key}".encode()).hexdigest()


EXISTS = "InvalidPlacementGroup.Duplicate"


class PlacementGroups:
    """A group for each job, zone and instance type; creating one again changes nothing."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._made: set[tuple[str, str]] = set()
        self._lock = Lock()

    def ensure(self, request: LaunchRequest) -> str:
        """Return the name of the group for these nodes, created if missing. Raise ProviderError."""
        region, name = request.pool.region, _name(request)
        with self._lock:
            if (region, name) not in self._made:
                self._make(request, name)
                self._made.add((region, name))
        return name

    def forget(self, region: str, name: str) -> None:
        """Forget that the group exists, so that the next launch checks for it."""
        with self._lock:
            self._made.discard((region, name))

    def _make(self, request: LaunchRequest, name: str) -> None:
        region = request.pool.region
        client = self._clients.reading("ec2", region)
        owned = make_tags(owner=request.owner, job=request.job)
        try:
            with map_errors("ec2:CreatePlacementGroup", region):
                client.create_placement_group(
                    GroupName=name,
                    Strategy="cluster",
                    TagSpecifications=[{"ResourceType": "placement-group", "Tags": owned}],
                )
        except BadRequestError as error:
            if code_of(error) != EXISTS:
                raise


def _name(request: LaunchRequest) -> str:
    said = f"{request.owner}/{request.job}/{request.pool.zone}/{request.pool.instance_type}"
    return "costopt-" + hashlib.sha256(said.encode()).hexdigest()[:24]
