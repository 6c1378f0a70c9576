"""What living nodes hold, counted once and then node by node, so that a launch need not look at
all of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from costopt.domain.fleet import Node

Limit = tuple[str, str]
"""A quota's name and what it counts."""


@dataclass(slots=True)
class Tally:
    """``loads`` by limit, nodes and dollars per hour by job."""

    nodes: list[Node] = field(default_factory=list)
    loads: dict[Limit, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    usd_per_hour: dict[str, float] = field(default_factory=dict)

    def count(self, jobs: Collection[str]) -> int:
        """How many nodes these jobs have."""
        return sum(count for job, count in self.counts.items() if job in jobs)

    def cost(self, jobs: Collection[str]) -> float:
        """Dollars per hour of the nodes of these jobs."""
        return sum(usd for job, usd in self.usd_per_hour.items() if job in jobs)

    def of(self, jobs: Collection[str]) -> tuple[Node, ...]:
        """The nodes of these jobs."""
        return tuple(node for node in self.nodes if node.job in jobs)
