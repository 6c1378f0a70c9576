"""The instances that Compute Engine lists, in all zones at once, and recently listed nodes.

Nodes stay known for as long as a caller may ask for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool
from costopt_gcp import instances
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.instances import read_node
from costopt_gcp.machine_types import last, region_of
from costopt_gcp.operations import InstanceEnd, InstanceEndings

KEEP_ENDED = timedelta(hours=2)
GRACE = timedelta(minutes=5)
"""How long a new instance may be missing from the lists."""


class KnownNodes:
    """The newest observation of each node. Safe to share between threads.

    Compute Engine forgets an instance as soon as it is deleted, so ended ones are stored here, with
    the end that the zone's operations report.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._end_known_at: dict[str, datetime] = {}
        self._lock = RLock()

    def see(self, nodes: Iterable[Node], now: datetime) -> tuple[Node, ...]:
        """Record these nodes."""
        with self._lock:
            return tuple(self._see(node, now) for node in nodes)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Record nodes that were never listed as alive; what is known of others is better."""
        with self._lock:
            for node in nodes:
                self._nodes.setdefault(node.node_id, node)

    def missing(self, owner: str, listed: Collection[str], silent: Collection[str]) -> list[Node]:
        """Return the live nodes that were not listed, without those of ``silent`` regions."""
        return [
            node
            for node in self.known(owner)
            if node.state.is_alive and node.node_id not in listed and node.pool.region not in silent
        ]

    def gone(self, node: Node, ending: InstanceEnd | None, now: datetime) -> None:
        """Record that a node has left the list, and why; a new one may not be listed yet."""
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
        """Drop nodes whose end has been known for long."""
        with self._lock:
            for node_id, known_at in list(self._end_known_at.items()):
                if now - known_at > KEEP_ENDED:
                    del self._nodes[node_id], self._end_known_at[node_id]

    def known(self, owner: str) -> tuple[Node, ...]:
        """Return the owner's nodes by launch."""
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.owner == owner]
        return tuple(sorted(nodes, key=lambda node: (node.launched_at, node.node_id)))

    def node(self, node_id: str) -> Node | None:
        """Return the node, None if it was never listed or ended long ago."""
        with self._lock:
            return self._nodes.get(node_id)

    def by_key(self, owner: str, key: str) -> tuple[Node, ...]:
        """Return the nodes of one launch."""
        return tuple(node for node in self.known(owner) if node.key == key)

    def in_pool(self, pool: Pool) -> tuple[Node, ...]:
        """Return the nodes of all owners that were listed in a pool."""
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


PAGE = 500
PERMISSION = "compute.instances.list"


class InstanceInventory:
    """The list of instances is the truth; an unreachable zone keeps its last answer."""

    def __init__(
        self, clients: Clients, regions: tuple[str, ...], book: KnownNodes, endings: InstanceEndings
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._book = book
        self._endings = endings
        self.silent: Mapping[str, ProviderError] = {}
        """The regions of which a zone did not answer the last time, and what went wrong."""

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Return every node of the owner; ended nodes for two hours. Raise ProviderError."""
        items = self._ask(owner)
        seen = self._book.see(filter(None, (read_node(item) for item in items)), now)
        listed = {node.node_id for node in seen}
        self._close(self._book.missing(owner, listed, self.silent.keys()), now)
        self._book.forget(now)
        return self._book.known(owner)

    def stopped(self, owner: str) -> list[Any]:
        """Return the owner's instances that are stopped and not deleted. Raise ProviderError."""
        return [each for each in self._ask(owner) if each.status in ("TERMINATED", "SUSPENDED")]

    def _ask(self, owner: str) -> list[Any]:
        request = {
            "project": self._clients.project,
            "filter": instances.owned_by(owner),
            "max_results": PAGE,
        }
        items, silent = [], {}
        with asking(PERMISSION, "all zones"):
            pages = self._clients.of("instances").aggregated_list(
                request=request, **self._clients.reading()
            )
            for scope, scoped in pages:
                zone = last(scope)
                if region_of(zone) not in self._regions:
                    continue
                if _unreachable(scoped):
                    silent[region_of(zone)] = ProviderUnavailableError(f"{zone}: not reachable")
                items.extend(scoped.instances)
        self.silent = silent
        return items

    def _close(self, missing: Collection[Node], now: datetime) -> None:
        """Record how nodes that left the list ended, if that is known."""
        if not missing:
            return
        oldest_at = min(node.launched_at for node in missing)
        self._endings.look({node.pool.zone for node in missing}, now, oldest_at)
        for node in missing:
            if node.pool.zone not in self._endings.silent:
                self._book.gone(node, self._ending(node), now)

    def _ending(self, node: Node) -> InstanceEnd | None:
        in_vain = self._endings.in_vain(node.node_id)
        waited = node.state is NodeState.WAITING and in_vain is not None
        return in_vain if waited else self._endings.of(node.node_id)


def _unreachable(scoped: Any) -> bool:
    return str(getattr(scoped.warning.code, "name", scoped.warning.code)) == "UNREACHABLE"
