"""Lets the other nodes of the gang put snapshots into this node's memory, and fetch them."""

from __future__ import annotations

import socket

from costopt.checkpoint.near.acceptor import Acceptor
from costopt.checkpoint.near.frame import receive_into, send_bytes
from costopt.checkpoint.near.gang_key import GangKey
from costopt.checkpoint.near.handshake import admit
from costopt.checkpoint.near.memory import SnapshotMemory
from costopt.checkpoint.near.peer import STALL_S
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.domain.errors import StoreError


class PeerServer:
    """Serves in threads from when it is made until ``close``. ``key`` None refuses everybody.

    Raises StoreError where the address cannot be had.
    """

    def __init__(self, memory: SnapshotMemory, *, host: str = "127.0.0.1", port: int = 0) -> None:
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
        self._acceptor = Acceptor(listener, self._attend, name="snapshots", stall_s=STALL_S)

    def close(self) -> None:
        """Accept nobody any more."""
        self._acceptor.close()

    def _attend(self, link: socket.socket) -> None:
        caller = admit(link, self.key)
        if caller is None:
            return
        request = caller.request
        match request["op"]:
            case "list":
                caller.grant(snapshots=[held.snapshot.encode() for held in self._memory.held()])
            case "fetch":
                held = self._memory.find(Snapshot.decode(request["snapshot"]))
                if held is None:
                    raise ValueError("the snapshot is not here any more")
                caller.grant()
                send_bytes(link, held.view)
            case "give":
                snapshot = Snapshot.decode(request["snapshot"])
                with self._memory.receiving(snapshot) as target:
                    caller.grant()
                    receive_into(link, target)
                    snapshot.check(target)
                caller.grant()
            case other:
                raise ValueError(f"nothing answers {other!r}")
