"""The newest observation of each node, for as long as a caller may ask for it.

Clouds list a node for a while after its end, or not at all, and their lists may lag behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool

KEEP_ENDED = timedelta(hours=2)
GRACE = timedelta(minutes=5)
"""How long a new node may be missing from a cloud's lists: they are eventually consistent."""


class NodeBook:
    """What is known of nodes. Safe to share between threads.

    A known end stays; one that was only assumed (LOST) gives way to what is seen later, and an
    estimated time of it to a reported one. ``order``
    gives by what the names of nodes are sorted.
    """

    def __init__(self, order: Callable[[str], Any] = str) -> None:
        self._order = order
        self._nodes: dict[str, Node] = {}
        self._end_known_at: dict[str, datetime] = {}
        self._announced: dict[str, datetime] = {}
        self._lock = RLock()

    def see(self, nodes: Iterable[Node], now: datetime) -> tuple[Node, ...]:
        """Record these nodes and return them as they are known.

        One whose end has no time ended when that was announced, else ``now``, which is an estimate.
        """
        with self._lock:
            return tuple(self._see(node, now) for node in nodes)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Record nodes of an earlier controller; what is known of others is better."""
        with self._lock:
            for node in nodes:
                self._nodes.setdefault(node.node_id, node)

    def announce_end(self, node_id: str, at: datetime) -> None:
        """Record when a node ended or will end, from a source other than its cloud's lists."""
        with self._lock:
            self._announced[node_id] = at

    def end(
        self,
        nodes: Iterable[Node],
        at: datetime | None,
        cause: EndCause,
        message: str,
        now: datetime,
    ) -> None:
        """Record how nodes ended that are not listed any more; ``at`` None as in ``see``."""
        ended = (
            replace(
                node,
                state=NodeState.ENDED,
                ended_at=None if at is None else max(node.launched_at, min(at, now)),
                end_cause=cause,
                message=message,
            )
            for node in nodes
        )
        self.see(ended, now)

    def forget(self, now: datetime) -> None:
        """Drop nodes whose end has been known for two hours."""
        with self._lock:
            for node_id, known_at in list(self._end_known_at.items()):
                if now - known_at > KEEP_ENDED:
                    self.drop(node_id)

    def drop(self, node_id: str) -> None:
        """Drop a node as if it never was."""
        with self._lock:
            self._nodes.pop(node_id, None)
            self._end_known_at.pop(node_id, None)
            self._announced.pop(node_id, None)

    def node(self, node_id: str) -> Node | None:
        """Return the node, None if it was never listed or ended long ago."""
        with self._lock:
            return self._nodes.get(node_id)

    def known(self, owner: str) -> tuple[Node, ...]:
        """Return the owner's nodes by launch."""
        nodes = self._where(lambda node: node.owner == owner)
        return tuple(sorted(nodes, key=lambda node: (node.launched_at, self._order(node.node_id))))

    def missing(
        self, owner: str, listed: Collection[str], silent: Collection[str] = ()
    ) -> tuple[Node, ...]:
        """Return the living nodes that were not listed, without those of ``silent`` regions."""
        return tuple(
            node
            for node in self.known(owner)
            if node.state.is_alive and node.node_id not in listed and node.pool.region not in silent
        )

    def by_key(self, owner: str, key: str) -> tuple[Node, ...]:
        """Return the nodes of one launch."""
        return self._where(lambda node: node.owner == owner and node.key == key)

    def in_pool(self, pool: Pool) -> tuple[Node, ...]:
        """Return the nodes of all owners that were seen in a pool."""
        return self._where(lambda node: node.pool == pool)

    def in_zone(self, zone: str) -> tuple[Node, ...]:
        """Return the nodes of all owners that were seen in the pools of a zone."""
        return self._where(lambda node: node.pool.zone == zone)

    def _where(self, matches: Callable[[Node], bool]) -> tuple[Node, ...]:
        with self._lock:
            return tuple(filter(matches, self._nodes.values()))

    def _see(self, node: Node, now: datetime) -> Node:
        before = self._nodes.get(node.node_id)
        if before is not None and before.end_cause not in (None, EndCause.LOST):
            announced = node.node_id in self._announced
            has_time = not node.state.is_alive and (node.ended_at is not None or announced)
            if not (before.end_is_estimate and has_time):
                return before
        if node.state.is_alive:
            self._end_known_at.pop(node.node_id, None)
        else:
            self._end_known_at.setdefault(node.node_id, now)
            if node.ended_at is None:
                announced_at = self._announced.get(node.node_id)
                ended_at = now if announced_at is None else min(announced_at, now)
                node = replace(node, ended_at=ended_at, end_is_estimate=announced_at is None)
        self._nodes[node.node_id] = node
        return node
