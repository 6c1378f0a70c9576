"""Compact placement: the nodes of a gang close to each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType
from costopt_gcp import labels
from costopt_gcp.clients import Clients
from costopt_gcp.errors import EXISTS, asking, code_of
from costopt_gcp.operations import Operations
from costopt_gcp.shape import family

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
        """The zones where the last gang was not placed compactly, and why."""
        return dict(self._apart)

    def policy(self, request: LaunchRequest, attempt: int) -> str | None:
        """The name of the policy for these nodes, made where it is missing; None for no policy.

        What can be done without is only asked for at the first attempt, so that another controller
        makes the same attempts. Raises ProviderError where a policy is required and cannot be made.
        """
        pool = request.pool
        close = request.nodes > 1 and family(pool.instance_type) in SERIES
        # Where reserved nodes stand was settled when they were reserved.
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
        """Whether a gang that was refused with a policy may be launched without, and is told of."""
        if self._wanted is PlacementMode.REQUIRED:
            return False
        self._apart[request.pool.zone] = f"the nodes are not placed compactly: {error.message}"
        return True

    def _ensure(self, request: LaunchRequest) -> str:
        """Making one again changes nothing."""
        region, name = request.pool.region, _name(request)
        client = self._clients.of("resource_policies")
        asked = {
            "name": name,
            "description": labels.description(request.owner, request.job),
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
