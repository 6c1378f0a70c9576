"""The newest observation of each node: Slurm forgets a job some minutes after its end.

What the queue no longer shows, the accounts may (``sacct``), or the record that the batch script
leaves in the shared folder; else the node is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import RLock

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool
from costopt_slurm.batch_script import PREEMPTED

KEEP_ENDED = timedelta(hours=2)


class GangBook:
    """What is known of nodes. Safe to share between threads."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._ended_at: dict[str, datetime] = {}
        self._lock = RLock()

    def see(self, nodes: Iterable[Node], now: datetime) -> None:
        """Record these nodes. A known end stays: Slurm may run a job of that id again."""
        with self._lock:
            for node in nodes:
                before = self._nodes.get(node.node_id)
                if before is not None and before.end_cause not in (None, EndCause.LOST):
                    continue
                self._nodes[node.node_id] = node
                if node.state.is_alive:
                    self._ended_at.pop(node.node_id, None)
                else:
                    self._ended_at.setdefault(node.node_id, now)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Record nodes of an earlier controller; what is known of others is better."""
        with self._lock:
            for node in nodes:
                self._nodes.setdefault(node.node_id, node)

    def end(
        self, nodes: Iterable[Node], at: datetime, cause: EndCause, message: str, now: datetime
    ) -> None:
        """Record the end of nodes that Slurm does not show any more."""
        ended = (
            replace(
                node,
                state=NodeState.ENDED,
                ended_at=max(node.launched_at, min(at, now)),
                end_cause=EndCause.NO_CAPACITY if node.state is NodeState.WAITING else cause,
                message=message,
            )
            for node in nodes
        )
        self.see(ended, now)

    def forget(self, now: datetime) -> None:
        """Drop nodes whose end has been known for long."""
        with self._lock:
            for node_id, known_at in list(self._ended_at.items()):
                if now - known_at > KEEP_ENDED:
                    del self._nodes[node_id], self._ended_at[node_id]

    def known(self, owner: str) -> tuple[Node, ...]:
        """Return the owner's nodes by launch."""
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.owner == owner]
        return tuple(sorted(nodes, key=lambda node: (node.launched_at, _order(node.node_id))))

    def by_key(self, owner: str, key: str) -> tuple[Node, ...]:
        """Return the nodes of one launch."""
        return tuple(node for node in self.known(owner) if node.key == key)

    def in_pool(self, pool: Pool) -> tuple[Node, ...]:
        """Return the nodes of all owners that were seen in a pool."""
        with self._lock:
            return tuple(node for node in self._nodes.values() if node.pool == pool)

    def in_zone(self, zone: str) -> tuple[Node, ...]:
        """Return the nodes of all owners that were seen in the pools of a zone."""
        with self._lock:
            return tuple(node for node in self._nodes.values() if node.pool.zone == zone)

    def unseen(self, owner: str, seen: Collection[str]) -> tuple[Node, ...]:
        """Return living nodes that are not among those seen now."""
        return tuple(n for n in self.known(owner) if n.state.is_alive and n.node_id not in seen)


def _order(node_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in node_id.split("-") if part.isdecimal())


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """What a batch script recorded of its end."""

    at: datetime
    preempted: bool

    @classmethod
    def parse(cls, text: str | None) -> ScriptEnd | None:
        """Return the record in a file, None where there is none."""
        lines = (text or "").splitlines()
        if not lines or not lines[0].isdigit():
            return None
        at = datetime.fromtimestamp(int(lines[0]), UTC)
        return cls(at, any(line.startswith(PREEMPTED) for line in lines[1:]))
