"""Cluster placement groups: the nodes of a gang close to each other."""

from __future__ import annotations

import hashlib
from threading import Lock

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.tags import make_tags

EXISTS = "InvalidPlacementGroup.Duplicate"


class PlacementGroups:
    """One for each job and zone; making one again changes nothing."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._made: set[tuple[str, str]] = set()
        self._lock = Lock()

    def ensure(self, request: LaunchRequest) -> str:
        """The name of the group for these nodes, made where it is missing. Raises ProviderError."""
        region, name = request.pool.region, _name(request)
        with self._lock:
            if (region, name) not in self._made:
                self._make(request, name)
                self._made.add((region, name))
        return name

    def forget(self, region: str, name: str) -> None:
        """It may be gone: look again before the next launch."""
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
