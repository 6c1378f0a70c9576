"""The instances that Compute Engine lists, in all zones at once, and how those it listed ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.provider.node_book import GRACE, NodeBook
from costopt_gcp import instances
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking
from costopt_gcp.instances import read_node
from costopt_gcp.machine_types import last, region_of
from costopt_gcp.operations import InstanceEnd, InstanceEndings

PAGE = 500
PERMISSION = "compute.instances.list"


class InstanceInventory:
    """The list of instances is the truth; an unreachable zone keeps its last answer."""

    def __init__(
        self, clients: Clients, regions: tuple[str, ...], book: NodeBook, endings: InstanceEndings
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
        self._close(self._book.missing(owner, listed, self.silent), now)
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
                self._end(node, self._ending(node), now)

    def _end(self, node: Node, ending: InstanceEnd | None, now: datetime) -> None:
        """Record that a node has left the list, and why; a new one may not be listed yet."""
        if ending is None and now - node.launched_at <= GRACE:
            return
        if ending is None:
            ending = InstanceEnd(now, EndCause.LOST, "Compute Engine does not list it any more")
        self._book.end([node], ending.at, ending.cause, ending.message, now)

    def _ending(self, node: Node) -> InstanceEnd | None:
        in_vain = self._endings.in_vain(node.node_id)
        waited = node.state is NodeState.WAITING and in_vain is not None
        return in_vain if waited else self._endings.of(node.node_id)


def _unreachable(scoped: Any) -> bool:
    return str(getattr(scoped.warning.code, "name", scoped.warning.code)) == "UNREACHABLE"
