"""Launches whose answers are lost, and whose orders cannot be put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter

import pytest

from costopt.domain.errors import (
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
)
from costopt.domain.fleet import LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = Pool("aws", "r", "r-a", "g6.xlarge", CapacityType.SPOT)
REQUEST = LaunchRequest("me", "job", POOL, 1, "key")
NODE = Node("n", "me", "job", POOL, "key", NodeState.PENDING, NOW, 1.0)


@dataclass
class Cloud:
    """Lists what it has made once ``lists``; ``orders`` and ``answers`` are what goes wrong."""

    orders: list[ProviderError] = field(default_factory=list)
    answers: list[ProviderError] = field(default_factory=list)
    lists: bool = True
    asked: int = 0

    def once(self) -> Callable[[], tuple[Node, ...]]:
        backoff = CapacityBackoff(kind=str, size=attrgetter("nodes"))
        once = IdempotentLauncher(self._find, self._order, self._start, backoff)
        return lambda: once.launch(REQUEST, NOW)

    def _find(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        return (NODE,) if self.asked and self.lists else ()

    def _order(self, request: LaunchRequest, now: datetime) -> str:
        if self.orders:
            raise self.orders.pop(0)
        return request.key

    def _start(self, order: str, now: datetime) -> None:
        assert order == REQUEST.key
        if self.answers:
            error = self.answers.pop(0)
            self.asked += isinstance(error, ProviderUnavailableError)
            raise error
        self.asked += 1


@pytest.mark.parametrize("error", [NoCapacityError("no price"), ForbiddenError("no template")])
def test_a_launch_in_doubt_is_not_called_failed_by_who_cannot_ask_again(
    error: ProviderError,
) -> None:
    cloud = Cloud(answers=[ProviderUnavailableError("lost")], lists=False)
    launch = cloud.once()
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError):
            launch()
        cloud.orders.append(error)
    cloud.lists = True
    assert launch() == (NODE,)
    assert cloud.asked == 1


def test_what_was_never_asked_for_was_not_refused() -> None:
    cloud = Cloud(orders=[NoCapacityError("no price")])
    launch = cloud.once()
    with pytest.raises(NoCapacityError):
        launch()
    assert launch() == (NODE,)


def test_a_refusal_ends_the_doubt_and_is_waited_after() -> None:
    cloud = Cloud(answers=[ProviderUnavailableError("lost"), NoCapacityError("none")], lists=False)
    launch = cloud.once()
    with pytest.raises(ProviderUnavailableError):
        launch()
    for reported in ("none", "refused before"):
        with pytest.raises(NoCapacityError, match=reported):
            launch()
