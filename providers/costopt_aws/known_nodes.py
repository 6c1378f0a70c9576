"""The nodes that EC2 listed, for as long as a caller may ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from threading import RLock

from costopt.domain.fleet import EndCause, Node, NodeState

KEEP_ENDED = timedelta(hours=2)
"""EC2 itself forgets a terminated instance after about an hour."""

GRACE = timedelta(minutes=5)
"""How long a new instance may be missing from EC2's lists: they are eventually consistent."""


class KnownNodes:
    """The newest observation of each node. Safe to share between threads."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._ended_at: dict[str, datetime] = {}
        self._lock = RLock()

    def record(self, nodes: Iterable[Node], now: datetime) -> tuple[Node, ...]:
        """Record these nodes and return them, with the end where EC2 does not report it."""
        with self._lock:
            return tuple(self._see(node, now) for node in nodes)

    def listed(self, region: str, owner: str, nodes: Iterable[Node], now: datetime) -> None:
        """Record all nodes of an owner that EC2 lists in a region.

        A node that is missing from the list and is no longer new is gone.
        """
        with self._lock:
            ids = {node.node_id for node in self.record(nodes, now)}
            for node in self.known(owner, region):
                missing = node.state.is_alive and node.node_id not in ids
                if missing and now - node.launched_at > GRACE:
                    self._see(
                        replace(
                            node,
                            state=NodeState.ENDED,
                            end_cause=EndCause.LOST,
                            message="EC2 does not list it any more",
                        ),
                        now,
                    )
            self._forget(now)

    def ends_at(self, node_id: str, at: datetime) -> None:
        """Record when a node ended or will end, from a source of EC2 other than its lists."""
        with self._lock:
            self._ended_at[node_id] = at

    def known(self, owner: str, region: str | None = None) -> tuple[Node, ...]:
        """Return the owner's nodes by launch, of one region or of all."""
        with self._lock:
            nodes = [
                node
                for node in self._nodes.values()
                if node.owner == owner and region in (None, node.pool.region)
            ]
        return tuple(sorted(nodes, key=lambda node: (node.launched_at, node.node_id)))

    def node(self, node_id: str) -> Node | None:
        """Return the node, None if it was never listed or ended long ago."""
        with self._lock:
            return self._nodes.get(node_id)

    def by_key(self, key: str) -> tuple[Node, ...]:
        """Return the nodes of one launch."""
        with self._lock:
            return tuple(node for node in self._nodes.values() if node.key == key)

    def _see(self, node: Node, now: datetime) -> Node:
        before = self._nodes.get(node.node_id)
        if not node.state.is_alive and node.ended_at is None:
            known = before.ended_at if before is not None else None
            first_ended_at = known or self._ended_at.get(node.node_id)
            node = replace(
                node, ended_at=now if first_ended_at is None else min(first_ended_at, now)
            )
        self._nodes[node.node_id] = node
        return node

    def _forget(self, now: datetime) -> None:
        old = [
            node.node_id
            for node in self._nodes.values()
            if node.ended_at is not None and now - node.ended_at > KEEP_ENDED
        ]
        for node_id in old:
            del self._nodes[node_id]
            self._ended_at.pop(node_id, None)
