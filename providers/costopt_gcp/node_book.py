"""The nodes that were seen, for as long as anybody may ask for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from threading import RLock

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool
from costopt_gcp.endings import InstanceEnd

KEEP_ENDED = timedelta(hours=2)
GRACE = timedelta(minutes=5)
"""How long a new instance may be missing from the lists."""


class KnownNodes:
    """Newest sight of each node. Safe to share between threads.

    Compute Engine forgets an instance as soon as it is deleted, so ended ones are kept here, with
    the end that the zone's operations tell of.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._end_known_at: dict[str, datetime] = {}
        self._lock = RLock()

    def see(self, nodes: Iterable[Node], now: datetime) -> tuple[Node, ...]:
        """Take these down."""
        with self._lock:
            return tuple(self._see(node, now) for node in nodes)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Take down those that were never seen, as living: others are known better."""
        with self._lock:
            for node in nodes:
                self._nodes.setdefault(node.node_id, node)

    def missing(self, owner: str, listed: Collection[str], silent: Collection[str]) -> list[Node]:
        """The owner's living nodes that were not listed, but for those of ``silent`` regions."""
        return [
            node
            for node in self.known(owner)
            if node.state.is_alive and node.node_id not in listed and node.pool.region not in silent
        ]

    def gone(self, node: Node, ending: InstanceEnd | None, now: datetime) -> None:
        """Take down that a node is not listed any more, and why; a new one may not be yet."""
        if ending is None and now - node.launched_at <= GRACE:
            return
        if ending is None:
            ending = InstanceEnd(now, EndCause.LOST, "Compute Engine does not list it any more")
        with self._lock:
            self._see(
                replace(
                    node,
                    state=NodeState.ENDED,
                    ended_at=max(node.launched_at, min(ending.at, now)),
                    end_cause=ending.cause,
                    message=ending.message,
                ),
                now,
            )

    def forget(self, now: datetime) -> None:
        """Let go of those whose end has been known for long."""
        with self._lock:
            for node_id, known_at in list(self._end_known_at.items()):
                if now - known_at > KEEP_ENDED:
                    del self._nodes[node_id], self._end_known_at[node_id]

    def known(self, owner: str) -> tuple[Node, ...]:
        """The owner's nodes by launch."""
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.owner == owner]
        return tuple(sorted(nodes, key=lambda node: (node.launched_at, node.node_id)))

    def node(self, node_id: str) -> Node | None:
        """The node, or None where it was never seen or has ended long ago."""
        with self._lock:
            return self._nodes.get(node_id)

    def by_key(self, owner: str, key: str) -> tuple[Node, ...]:
        """The nodes of one launch."""
        return tuple(node for node in self.known(owner) if node.key == key)

    def in_pool(self, pool: Pool) -> tuple[Node, ...]:
        """The nodes of all owners that were seen in a pool."""
        with self._lock:
            return tuple(node for node in self._nodes.values() if node.pool == pool)

    def _see(self, node: Node, now: datetime) -> Node:
        before = self._nodes.get(node.node_id)
        if before is not None and before.end_cause not in (None, EndCause.LOST):
            return before
        if not node.state.is_alive and node.ended_at is None:
            node = replace(node, ended_at=now)
        if node.state.is_alive:
            self._end_known_at.pop(node.node_id, None)
        else:
            self._end_known_at.setdefault(node.node_id, now)
        self._nodes[node.node_id] = node
        return node
