"""Ends of nodes that no process saw: estimated from their last signs of life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from costopt.domain.errors import StoreError
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.runtime import Runtime


class EndEstimator:
    """Remembers when nodes were last listed as living, and reads when they last reported."""

    def __init__(self, runtime: Runtime, jobs: Mapping[str, Job]) -> None:
        self._runtime = runtime
        self._jobs = jobs
        self._listed_at: dict[str, datetime] = {}

    def note_listed(self, nodes: Iterable[Node], now: datetime) -> None:
        """Record that these nodes are listed as living; those not listed since are forgotten."""
        self._listed_at.update((node.node_id, now) for node in nodes)

    def retain(self, node_ids: Iterable[str]) -> None:
        """Forget all but these nodes."""
        known = self._listed_at
        self._listed_at = {node_id: known[node_id] for node_id in node_ids if node_id in known}

    def estimate(self, job: str, node_id: str, launched_at: datetime, now: datetime) -> datetime:
        """Return when a node was last listed or last sent a heartbeat, whichever is later.

        Return ``now`` for a node without a heartbeat that can be read: its cost is then never
        underestimated.
        """
        try:
            heard_at = self._runtime.last_heartbeat_at(self._jobs[job], (node_id,)).get(node_id)
        except StoreError:
            heard_at = None
        if heard_at is None:
            return now
        return min(now, max(launched_at, heard_at, self._listed_at.get(node_id, launched_at)))
