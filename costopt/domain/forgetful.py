"""A provider whose lists forget nodes that have ended, though it can tell how they did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from costopt.domain.fleet import Node


@runtime_checkable
class TracksEndedNodes(Protocol):
    """A provider that lists only living nodes and keeps in mind those that it has seen itself.

    Of what ended while no controller ran it has to be reminded, else the true end is never told.
    """

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """These live by the ledger: ``nodes`` is to list them, with their end where they ended."""
        ...
