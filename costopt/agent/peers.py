"""Whether the other members of a gang are alive, told by heartbeats that keep changing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Heartbeat, NodeActivity


@dataclass(slots=True)
class _Sighting:
    heartbeat: Heartbeat
    changed_at: float


class PeerMonitor:
    """Heartbeats of the other members as this node sees them, by its own monotonic clock."""

    def __init__(self, mailbox: Mailbox, node_ids: tuple[str, ...]) -> None:
        self._mailbox = mailbox
        self._node_ids = node_ids
        self._sightings: dict[str, _Sighting] = {}

    def poll(self) -> None:
        """Read every peer's heartbeat. Raises StoreError."""
        for node_id in self._node_ids:
            beat = self._mailbox.heartbeat(node_id)
            last = self._sightings.get(node_id)
            if beat is not None and (last is None or last.heartbeat.beat != beat.beat):
                self._sightings[node_id] = _Sighting(beat, time.monotonic())

    def lost(self, since: float) -> str | None:
        """Why the gang cannot go on: a peer that is gone, leaving, or unheard since ``since``.

        A peer that has never been heard is still booting, unless others wait for it to be: it is
        not lost. ``since`` is a monotonic time.
        """
        for node_id, sighting in self._sightings.items():
            if sighting.heartbeat.state is NodeActivity.GONE:
                return f"{node_id} has left"
            if sighting.changed_at < since:
                return f"no heartbeat from {node_id}"
        return None

    def unreachable(self, since: float) -> frozenset[str]:
        """Peers that were heard once, but are gone or unheard since that monotonic time."""
        return frozenset(
            node_id
            for node_id, sighting in self._sightings.items()
            if sighting.heartbeat.state is NodeActivity.GONE or sighting.changed_at < since
        )

    def snapshot_addresses(self, since: float) -> dict[str, str]:
        """Where peers that were heard since that monotonic time take snapshots, by node."""
        silent = self.unreachable(since)
        return {
            node_id: sighting.heartbeat.snapshots
            for node_id, sighting in self._sightings.items()
            if node_id not in silent
            and sighting.heartbeat.snapshots
            and not sighting.heartbeat.notice
        }

    def training_peers(self, generation: int, since: float) -> str | None:
        """A peer, heard since that monotonic time, whose trainer of an earlier generation runs."""
        for node_id, sighting in self._sightings.items():
            beat = sighting.heartbeat
            if (
                beat.state.is_training
                and beat.generation < generation
                and sighting.changed_at >= since
            ):
                return node_id
        return None

    def leaving(self) -> str | None:
        """A peer that has a notice or a drain, or None."""
        beats = (sighting.heartbeat for sighting in self._sightings.values())
        return next((f"{beat.node_id} is leaving" for beat in beats if beat.notice), None)
