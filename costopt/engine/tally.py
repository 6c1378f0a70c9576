"""What living nodes hold, counted once and then node by node, so that a launch need not look at
all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.domain.fleet import Node
from costopt.domain.limits import Resource
from costopt.engine.spending import Payer

Limit = tuple[str, str]
"""A quota's name and what it counts."""


@dataclass(slots=True)
class ResourceUsage:
    """What nodes hold, by name of the resource, and how many were asked for in the last hour."""

    held: dict[str, float] = field(default_factory=dict)
    launched: int = 0

    def amount(self, resource: Resource) -> float:
        """Return how much of the resource they hold."""
        return self.held.get(resource.key, 0.0)

    def copy(self) -> ResourceUsage:
        """Return one that changes independently."""
        return ResourceUsage({**self.held}, self.launched)

    def add(self, more: ResourceUsage) -> None:
        """Count these in."""
        for name, amount in more.held.items():
            self.held[name] = self.held.get(name, 0.0) + amount
        self.launched += more.launched


@dataclass(slots=True)
class UsageTally:
    """``loads`` by limit; what each job holds, and ``whole``, what all do. ``launched_for``: nodes
    launched in the last hour for jobs that were closed meanwhile, by who pays."""

    nodes: list[Node] = field(default_factory=list)
    loads: dict[Limit, float] = field(default_factory=dict)
    whole: ResourceUsage = field(default_factory=ResourceUsage)
    launched_for: dict[Payer, int] = field(default_factory=dict)
    _by_job: dict[str, ResourceUsage] = field(default_factory=dict)
    _by_jobs: dict[frozenset[str], ResourceUsage] = field(default_factory=dict)

    def add(self, job: str, more: ResourceUsage) -> None:
        """The job holds more."""
        self.whole.add(more)
        self._by_job.setdefault(job, ResourceUsage()).add(more)
        for jobs, held in self._by_jobs.items():
            if job in jobs:
                held.add(more)

    def of_job(self, job: str) -> ResourceUsage:
        """What it holds."""
        return self._by_job.get(job, ResourceUsage())

    def of(self, jobs: frozenset[str]) -> ResourceUsage:
        """What they hold together: added up once, and kept up to date."""
        if jobs not in self._by_jobs:
            together = self._by_jobs[jobs] = ResourceUsage()
            for job, held in self._by_job.items():
                if job in jobs:
                    together.add(held)
        return self._by_jobs[jobs]

    def nodes_of(self, jobs: frozenset[str]) -> tuple[Node, ...]:
        """The nodes of these jobs."""
        return tuple(node for node in self.nodes if node.job in jobs)

    def copy(self) -> UsageTally:
        """Another one, to count what may yet come to nothing."""
        return UsageTally(
            [*self.nodes],
            {**self.loads},
            self.whole.copy(),
            self.launched_for,
            {job: held.copy() for job, held in self._by_job.items()},
            {jobs: held.copy() for jobs, held in self._by_jobs.items()},
        )
