"""A provider of no pools, to be overridden by tests in what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer
from costopt.provider.base import Capability, Provider


class StubProvider(Provider):
    """Has no nodes and gives none."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset({"x"})

    def capabilities(self) -> frozenset[Capability]:
        return frozenset()

    def uninterruptible_s(self, now: datetime) -> float:
        return 0.0

    def offers(self, now: datetime) -> Sequence[Offer]:
        return ()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        raise AssertionError(request)

    def nodes(self, owner: str) -> tuple[Node, ...]:
        return ()

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        return ()

    def terminate(self, node_id: str) -> None:
        return

    def close(self) -> None:
        return
