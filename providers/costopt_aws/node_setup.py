"""What a node is started with: image, role, network, first commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from costopt.domain.fleet import LaunchRequest


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """``user_data`` is plain text and holds no secrets; ``instance_profile`` a name.

    ``subnet_ids`` are by zone id; in a zone without one the default subnet is used. ``root_gib``
    is the size of the gp3 root volume, which goes with its node.
    """

    image_id: str
    user_data: str
    instance_profile: str
    security_group_ids: tuple[str, ...] = ()
    subnet_ids: Mapping[str, str] = field(default_factory=dict)
    root_device: str = "/dev/sda1"
    root_gib: int = 200
    key_name: str | None = None


class Bootstrap(Protocol):
    """Says what nodes are started with."""

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """For the nodes of ``request``; the same for all launches of a job in a region.

        Raises ProviderError where the image or the job's bundle is missing.
        """
        ...
