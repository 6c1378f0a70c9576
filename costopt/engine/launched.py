"""What came of launches."""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.domain.fleet import Launch, Node, NodeState
from costopt.domain.market import Pool


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """Who refused a launch, and why; ``by_pool``: nothing more is asked of its pool."""

    why: str
    by_pool: bool = True


LaunchAnswer = tuple[Node, ...] | LaunchRefused
"""The nodes that are new, () while that is unknown."""


@dataclass(slots=True)
class LaunchResults:
    """Nodes that are new, pools that refused, and jobs that drain nothing now: a launch of theirs
    was refused or put off, so they decide again first, or waits for capacity, or a guard would
    refuse it in any case. ``refused`` says who refused a launch, and why."""

    nodes: list[Node] = field(default_factory=list)
    refusing: set[Pool] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    refused: dict[Launch, str] = field(default_factory=dict)

    def record(self, launch: Launch, answer: LaunchAnswer | None) -> None:
        """What came of one more; None where it was put off."""
        if isinstance(answer, LaunchRefused):
            self.refused[launch] = answer.why
            if answer.by_pool:
                self.refusing.add(launch.pool)
        elif answer is not None:
            self.nodes += answer
            if all(node.state is not NodeState.WAITING for node in answer):
                return
        self.held.add(launch.job)
