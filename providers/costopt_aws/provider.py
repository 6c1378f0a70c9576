"""Amazon EC2 as the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer
from costopt.domain.ports import Clock
from costopt_aws.clients import Clients
from costopt_aws.options import AwsOptions

NAME = "aws"


class AwsProvider:
    """Implements the Provider port over EC2."""

    def __init__(self, clock: Clock, options: AwsOptions, clients: Clients) -> None:
        self.options = options
        self.clients = clients
        self._clock = clock

    @property
    def names(self) -> frozenset[str]:
        """Only "aws"."""
        return frozenset({NAME})

    def firm_s(self, now: datetime) -> float:  # noqa: ARG002
        """0: EC2 may take a spot node at any time."""
        return 0.0

    def offers(self, now: datetime) -> Sequence[Offer]:  # noqa: ARG002
        """Every pool of the regions."""
        return ()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """All nodes or none."""
        raise BadRequestError(f"{request.pool}: nothing can be launched yet")

    def nodes(self, owner: str) -> tuple[Node, ...]:  # noqa: ARG002
        """Every node with this owner tag."""
        return ()

    def notices(self, owner: str) -> tuple[Interruption, ...]:  # noqa: ARG002
        """Interruptions announced and not yet struck."""
        return ()

    def terminate(self, node_id: str) -> None:
        """Release a node."""

    def close(self) -> None:
        """Let go of connections."""
        self.clients.close()
