"""What simulated nodes may have besides their record."""

from __future__ import annotations

from typing import Protocol

from costopt.domain.fleet import Node
from costopt.domain.market import Interruption


class NodeProcessHost(Protocol):
    """Gives nodes a body: process mode starts and kills something real. Called in order.

    Where it raises ProviderError for a node of a launch, the whole launch is undone.
    """

    def wait(self, node: Node) -> None:
        """The node was asked for, and waits for capacity without a body."""
        ...

    def start(self, node: Node) -> None:
        """The node was launched, or has waited long enough."""
        ...

    def notice(self, interruption: Interruption) -> None:
        """The node was told that it will be taken."""
        ...

    def stop(self, node: Node) -> None:
        """The node ended; ``end_cause`` says why."""
        ...
