"""Whether the other members of a gang are alive, judged by heartbeats that keep changing."""

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
        """Read every peer's heartbeat. Raise StoreError if the store does not answer."""
        for node_id in self._node_ids:
            beat = self._mailbox.heartbeat(node_id)
            last = self._sightings.get(node_id)
            if beat is not None and (last is None or last.heartbeat.beat != beat.beat):
                self._sightings[node_id] = _Sighting(beat, time.monotonic())

    def lost(self, since: float) -> str | None:
        """Return why the gang cannot continue: a peer is gone, leaving, or without a heartbeat.

        A peer that has never sent a heartbeat is still booting, unless others wait for it to start:
        it is not lost. ``since`` is the monotonic time after which a heartbeat must have come.
        """
        for node_id, sighting in self._sightings.items():
            if sighting.heartbeat.state is NodeActivity.GONE:
                return f"{node_id} has left"
            if sighting.changed_at < since:
                return f"no heartbeat from {node_id}"
        return None

    def unreachable(self, since: float) -> frozenset[str]:
        """Return peers that once sent heartbeats but are gone, or sent none since that monotonic
        time.
        """
        return frozenset(
            node_id
            for node_id, sighting in self._sightings.items()
            if sighting.heartbeat.state is NodeActivity.GONE or sighting.changed_at < since
        )

    def snapshot_addresses(self, since: float) -> dict[str, str]:
        """Return where each node heard from since that monotonic time accepts snapshots."""
        silent = self.unreachable(since)
        return {
            node_id: sighting.heartbeat.snapshots
            for node_id, sighting in self._sightings.items()
            if node_id not in silent
            and sighting.heartbeat.snapshots
            and not sighting.heartbeat.notice
        }

    def training_peers(self, generation: int, since: float) -> str | None:
        """Return a peer, heard from since then, whose earlier generation's trainer still runs."""
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
        """Return a peer that has a notice or a drain, or None."""
        beats = (sighting.heartbeat for sighting in self._sightings.values())
        return next((f"{beat.node_id} is leaving" for beat in beats if beat.notice), None)
