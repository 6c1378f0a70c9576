"""Flex-start: launches that wait for capacity, and nodes that run for days at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.fleet import MAX_RUN, MAX_WAIT, Node
from costopt.domain.history import MarketHistory
from costopt.domain.market import Pool


@dataclass(slots=True)
class _Waiting:
    key: str
    node_ids: list[str]
    pool: Pool
    expires_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class QueueResult:
    """What came of a launch: its nodes start at this instant, or have waited in vain until then."""

    node_ids: tuple[str, ...]
    at: datetime
    starts: bool


class FlexStartQueue:
    """First come, first served. ``running`` tells how many nodes live in a pool."""

    def __init__(self, market: MarketHistory, running: Callable[[Pool], int]) -> None:
        self._market = market
        self._running = running
        self._waiting: list[_Waiting] = []
        self._ends_at: dict[str, datetime] = {}

    def wait(self, nodes: tuple[Node, ...]) -> None:
        """Nodes have waited since they were asked for; those of one launch start together."""
        for node in nodes:
            launch = next((each for each in self._waiting if each.key == node.key), None)
            if launch is None:
                at = node.launched_at
                launch = _Waiting(node.key, [], node.pool, at + MAX_WAIT, at)
                self._waiting.append(launch)
            launch.node_ids.append(node.node_id)

    def start(self, node_ids: tuple[str, ...], at: datetime) -> None:
        """Nodes begin to run."""
        self._ends_at |= dict.fromkeys(node_ids, at + MAX_RUN)

    def forget(self, node_id: str) -> None:
        """A node has ended, or is no longer waited for."""
        self._ends_at.pop(node_id, None)
        for launch in self._waiting:
            if node_id in launch.node_ids:
                launch.node_ids.remove(node_id)
        self._waiting = [launch for launch in self._waiting if launch.node_ids]

    def over(self, now: datetime) -> list[tuple[str, datetime]]:
        """The nodes whose longest run is over by ``now``, and since when."""
        return [(node_id, at) for node_id, at in self._ends_at.items() if at <= now]

    def served(self, now: datetime) -> Iterator[QueueResult]:
        """Whose waiting is over by ``now``. Each is to be acted on before the next is asked for."""
        for launch in tuple(self._waiting):
            starts_at = self._room_at(launch, min(now, launch.expires_at))
            launch.seen_at = now
            if starts_at is not None or now >= launch.expires_at:
                self._waiting.remove(launch)
                at = launch.expires_at if starts_at is None else starts_at
                yield QueueResult(tuple(launch.node_ids), at, starts_at is not None)

    def _room_at(self, launch: _Waiting, until: datetime) -> datetime | None:
        """The first instant since it was last looked at at which the pool has room for it."""
        history = self._market.pools[launch.pool]
        present = history.at(launch.seen_at)
        states = [] if present is None else [(launch.seen_at, present.nodes_available)]
        states += [(s.starts_at, s.nodes_available) for s in history.between(launch.seen_at, until)]
        taken = self._running(launch.pool)
        for at, available in states:
            if available is not None and available - taken >= len(launch.node_ids):
                return at
        return None
