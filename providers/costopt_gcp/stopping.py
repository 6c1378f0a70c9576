"""Giving nodes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of
from costopt_gcp.node_book import GRACE, KnownNodes
from costopt_gcp.shape import last

PERMISSION = "compute.instances.delete"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class InstanceTerminator:
    """instances.delete. That a node is gone is said by the lists, not here."""

    def __init__(self, clients: Clients, book: KnownNodes) -> None:
        self._clients = clients
        self._book = book

    def terminate(self, node_id: str, now: datetime) -> None:
        """Release a node; silent where it is missing or has ended. Raises ProviderError."""
        node = self._book.node(node_id)
        if node is None:
            if _NAME.fullmatch(node_id):
                for zone in self._zones_of(node_id):
                    self.delete(zone, node_id)
        elif node.state.is_alive:
            there = self.delete(node.pool.zone, node_id)
            if not there and now - node.launched_at <= GRACE and self._zones_of(node_id):
                raise ProviderUnavailableError(
                    f"{node.pool.zone}: {node_id} is so new that it is not found yet"
                )

    def delete(self, zone: str, name: str) -> bool:
        """Whether the zone knows the instance. Raises ProviderError."""
        client = self._clients.of("instances")
        return removed(
            lambda: client.delete_unary(
                project=self._clients.project, zone=zone, instance=name, **self._clients.once()
            ),
            PERMISSION,
            f"{zone}: {name}",
        )

    def _zones_of(self, name: str) -> list[str]:
        request = {"project": self._clients.project, "filter": f'name = "{name}"'}
        with asking("compute.instances.list", name):
            pages = self._clients.of("instances").aggregated_list(
                request=request, **self._clients.reading()
            )
            return [last(scope) for scope, scoped in pages if scoped.instances]


def removed(call: Callable[[], object], permission: str, about: str) -> bool:
    """Whether there was something to remove. Raises ProviderError."""
    try:
        with asking(permission, about):
            call()
    except BadRequestError as error:
        if code_of(error) not in MISSING:
            raise
        return False
    return True
