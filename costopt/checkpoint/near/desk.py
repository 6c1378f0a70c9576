"""Where the trainers of this node bring their snapshots and ask for one: a Unix socket.

The name is abstract (unix(7)): it is gone with the process, however that ends. Processes of
another user are turned away.
"""

from __future__ import annotations

import os
import socket
import struct
import uuid
from dataclasses import asdict
from typing import Any

from costopt.checkpoint.arena import SharedMemory
from costopt.checkpoint.near.acceptor import ConnectionServer
from costopt.checkpoint.near.frame import receive_frame_and_descriptor, send_frame
from costopt.checkpoint.near.memory import MemorySnapshot
from costopt.checkpoint.near.near_tiers import AvailableSnapshot, ReplicaManager
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.checkpoint.near.tier import Tier

CREDENTIALS = struct.Struct("3i")
"""struct ucred of SO_PEERCRED: pid, uid, gid."""
IO_TIMEOUT_S = 30.0


class SnapshotSocketServer:
    """Serves in threads from when it is made until ``close``; ``address`` begins with "@"."""

    def __init__(self, tiers: ReplicaManager) -> None:
        self.address = f"@costopt-{uuid.uuid4().hex}"
        self._tiers = tiers
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(socket_name(self.address))
        listener.listen()
        self._acceptor = ConnectionServer(listener, self._handle, name="desk", stall_s=IO_TIMEOUT_S)

    def close(self) -> None:
        """Accept nobody any more."""
        self._acceptor.close()

    def _handle(self, link: socket.socket) -> None:
        if not _is_ours(link):
            return
        request, descriptor = receive_frame_and_descriptor(link)
        match request["op"]:
            case "keep":
                self._keep(link, request, descriptor)
            case "offers":
                offers = [
                    {"tier": each.tier, "node": each.node, "snapshot": each.snapshot.encode()}
                    for each in self._tiers.available()
                ]
                send_frame(link, {"offers": offers})
            case "fetch":
                self._fetch(link, request)
            case other:
                raise ValueError(f"nothing answers {other!r}")

    def _keep(self, link: socket.socket, request: dict[str, Any], descriptor: int | None) -> None:
        if descriptor is None:
            raise ValueError("a snapshot without its memory")
        arena = SharedMemory(descriptor, request["arena_bytes"], writable=False)
        # Who brought it may be gone before all is kept.
        heard = True
        for kept in self._tiers.store(MemorySnapshot(Snapshot.decode(request["snapshot"]), arena)):
            if heard:
                try:
                    send_frame(link, {"kept": asdict(kept)})
                except OSError:
                    heard = False
        if heard:
            send_frame(link, {"done": True})

    def _fetch(self, link: socket.socket, request: dict[str, Any]) -> None:
        offer = AvailableSnapshot(
            Tier(request["tier"]), Snapshot.decode(request["snapshot"]), request["node"]
        )
        if offer.tier is Tier.DISK and self._tiers.disk is not None:
            send_frame(link, {"folder": str(self._tiers.disk.folder)})
            return
        held = self._tiers.fetch(offer)
        send_frame(link, {"arena_bytes": held.arena.size_bytes}, held.arena.descriptor)


def socket_name(address: str) -> str:
    """The socket's name as the kernel takes it. Raises ValueError for another kind of address."""
    if not address.startswith("@"):
        raise ValueError(f"{address!r} is no address of a desk")
    return "\0" + address[1:]


def _is_ours(link: socket.socket) -> bool:
    found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(found)
    return bool(user == os.getuid())
