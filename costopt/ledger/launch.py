"""Launches that were intended, confirmed or given up, by their idempotency key."""

from __future__ import annotations

from costopt.domain.events import LaunchFailed, LaunchIntended, NodeLaunched
from costopt.domain.events.node import NOT_SENT


class LaunchAccount:
    """An intent is open until as many nodes of its key as it asked for exist, or it failed."""

    def __init__(self) -> None:
        self.open: dict[str, LaunchIntended] = {}
        self.failed = 0
        self._nodes: dict[str, int] = {}

    @property
    def confirmed(self) -> int:
        """How many launch requests brought at least one node."""
        return len(self._nodes)

    def intend(self, event: LaunchIntended) -> None:
        """Open the intent, unless its nodes were already seen."""
        if self._nodes.get(event.key, 0) < event.nodes:
            self.open[event.key] = event

    def wait(self, event: NodeLaunched) -> None:
        """The launch was answered, and its nodes wait for capacity: there is none of them yet."""
        self.open.pop(event.key, None)

    def confirm(self, event: NodeLaunched) -> None:
        """One more node of the key; the caller passes each node once."""
        self._nodes[event.key] = self._nodes.get(event.key, 0) + 1
        intent = self.open.get(event.key)
        if intent is not None and self._nodes[event.key] >= intent.nodes:
            del self.open[event.key]

    def fail(self, event: LaunchFailed) -> None:
        """The launch came to nothing."""
        self.failed += event.error != NOT_SENT
        self.open.pop(event.key, None)
