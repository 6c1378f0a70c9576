"""Where a copy of the state is, the nearest first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """MEMORY and DISK are this node's, PEER the memory of another. STORE alone is durable."""

    MEMORY = "memory"
    DISK = "disk"
    PEER = "peer"
    STORE = "store"

    @property
    def distance(self) -> int:
        """Less is nearer."""
        return list(Tier).index(self)


@dataclass(frozen=True, slots=True)
class Replica:
    """A tier holds a snapshot, on ``node`` in ``zone`` ("" where nobody said), or, with
    ``complaint``, does not and why."""

    tier: Tier
    node: str = ""
    zone: str = ""
    complaint: str = ""

    def __str__(self) -> str:
        """As people read it."""
        return describe_location(self.tier, self.node) + (f" ({self.zone})" if self.zone else "")


def describe_location(tier: Tier, node: str) -> str:
    """The tier, and the node where it is another one's."""
    match tier:
        case Tier.MEMORY:
            return "the memory of this node"
        case Tier.DISK:
            return "the disk of this node"
        case Tier.PEER:
            return f"the memory of {node}"
        case Tier.STORE:
            return "the object store"
