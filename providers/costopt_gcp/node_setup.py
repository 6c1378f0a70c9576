"""What a node is started with: image, service account, network, first commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from costopt.domain.fleet import LaunchRequest


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """``startup_script`` is plain text and holds no secrets; ``image`` a resource's path.

    ``service_account`` is the nodes' identity, None for one without any. ``root_gib`` is the size
    of the boot disk, which goes with its node. ``external_ip``: whether nodes reach the internet by
    an address of their own; without one they need Cloud NAT or Private Google Access.
    """

    image: str
    startup_script: str
    service_account: str | None
    network: str = "global/networks/default"
    subnetwork: str | None = None
    external_ip: bool = True
    root_gib: int = 200
    disk_type: str = "pd-balanced"


class Bootstrap(Protocol):
    """Says what nodes are started with."""

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """For the nodes of ``request``; the same for all launches of a job in a region.

        Raises ProviderError where the image or the job's bundle is missing.
        """
        ...
