"""Lets the other nodes of the gang put snapshots into this node's memory, and fetch them."""

from __future__ import annotations

import socket

from costopt.checkpoint.near.acceptor import ConnectionServer
from costopt.checkpoint.near.frame import receive_exactly, send_bytes
from costopt.checkpoint.near.gang_key import GangKey
from costopt.checkpoint.near.handshake import accept_peer
from costopt.checkpoint.near.memory import MemoryTier
from costopt.checkpoint.near.peer import IO_TIMEOUT_S
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.domain.errors import StoreError


class PeerServer:
    """Serves in threads from when it is made until ``close``. ``key`` None refuses everybody.

    Raises StoreError where the address cannot be had.
    """

    def __init__(self, memory: MemoryTier, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.key: GangKey | None = None
        self._memory = memory
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise StoreError(
                f"cannot serve snapshots at {host}:{port}: {error}",
                hint="give an address of this machine",
            ) from error
        self.address = f"{host}:{listener.getsockname()[1]}"
        self._acceptor = ConnectionServer(
            listener, self._attend, name="snapshots", stall_s=IO_TIMEOUT_S
        )

    def close(self) -> None:
        """Accept nobody any more."""
        self._acceptor.close()

    def _attend(self, link: socket.socket) -> None:
        caller = accept_peer(link, self.key)
        if caller is None:
            return
        request = caller.request
        match request["op"]:
            case "list":
                caller.accept(snapshots=[held.snapshot.encode() for held in self._memory.newest()])
            case "fetch":
                held = self._memory.find(Snapshot.decode(request["snapshot"]))
                if held is None:
                    raise ValueError("the snapshot is not here any more")
                caller.accept()
                send_bytes(link, held.view)
            case "give":
                snapshot = Snapshot.decode(request["snapshot"])
                with self._memory.receiving(snapshot) as target:
                    caller.accept()
                    receive_exactly(link, target)
                    snapshot.check(target)
                caller.accept()
            case other:
                raise ValueError(f"nothing answers {other!r}")
