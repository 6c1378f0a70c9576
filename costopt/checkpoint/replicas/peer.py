"""The peer tier: snapshots sent to and fetched from another node's memory.

The raw bytes of a snapshot follow a signed request or response; the digests in the signed manifest
verify them. ``PeerClient`` reaches another node, ``PeerServer`` lets the other nodes of the gang
store and fetch snapshots here, and ``ConnectionServer`` runs a thread for each connection to a
listening socket.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from costopt.checkpoint.replicas.local import MemoryTier
from costopt.checkpoint.replicas.snapshot import Snapshot
from costopt.checkpoint.replicas.wire import (
    GangKey,
    accept_peer,
    authenticate,
    receive_exactly,
    send_bytes,
    send_frame,
    verify_reply,
)
from costopt.domain.errors import CheckpointError, CostoptError, StoreError

CONNECT_S = 2.0
IO_TIMEOUT_S = 5.0
"""A peer that neither sends nor accepts a byte for so long is gone."""
PATIENCE_S = 3.0
"""A peer may learn of a new generation later than this node."""
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class PeerClient:
    """Another node's memory. ``address`` is "host:port"; ``zone`` is "" if it is unknown."""

    node: str
    address: str
    zone: str = ""

    def send(self, key: GangKey, snapshot: Snapshot, view: memoryview) -> None:
        """Put a snapshot into the peer's memory; on return the peer has verified and stored it.

        Raise CheckpointError: gone, refused, of an older generation, no space.
        """
        with self._asked(key, {"op": "give", "snapshot": snapshot.encode()}) as (link, nonce, _):
            send_bytes(link, view)
            verify_reply(nonce, link, key)

    def snapshots(self, key: GangKey) -> tuple[Snapshot, ...]:
        """Return the peer's snapshots. Raise CheckpointError if it does not answer."""
        with self._asked(key, {"op": "list"}) as (_, _, response):
            return tuple(Snapshot.decode(fields) for fields in response["snapshots"])

    def fetch(
        self,
        key: GangKey,
        snapshot: Snapshot,
        target: memoryview,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Read a snapshot's verified bytes into ``target``, or ranges of them, not verified, one
        after the other. Raise CheckpointError if that fails.
        """
        asked = {"op": "fetch", "snapshot": snapshot.encode(), "ranges": ranges}
        with self._asked(key, asked) as (link, _, _):
            receive_exactly(link, target)
            if ranges is None:
                snapshot.check(target)

    @contextmanager
    def _asked(
        self, key: GangKey, request: dict[str, Any]
    ) -> Iterator[tuple[socket.socket, str, dict[str, Any]]]:
        """Yield a connection on which the request was granted, our nonce, and the response."""
        end = time.monotonic() + PATIENCE_S
        try:
            while True:
                with self._connected() as link:
                    nonce, response = authenticate(link, key, request)
                    if response is not None:
                        yield link, nonce, response
                        return
                if time.monotonic() > end:
                    raise ValueError(f"it does not know generation {key.generation}")
                time.sleep(RETRY_S)
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise CheckpointError(f"{self.node} at {self.address}: {error}") from error

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=CONNECT_S) as link:
            link.settimeout(IO_TIMEOUT_S)
            yield link


class PeerServer:
    """Serves in threads from its creation until ``close``. ``key`` None rejects every client.

    Raise StoreError if the address is unavailable.
    """

    def __init__(self, memory: MemoryTier, *, host: str = "127.0.0.1") -> None:
        self.key: GangKey | None = None
        self._memory = memory
        try:
            listener = socket.create_server((host, 0))
        except OSError as error:
            raise StoreError(
                f"cannot serve snapshots at {host}: {error}",
                hint="choose an address of this machine",
            ) from error
        self.address = f"{host}:{listener.getsockname()[1]}"
        self._acceptor = ConnectionServer(
            listener, self._attend, name="snapshots", stall_s=IO_TIMEOUT_S
        )

    def close(self) -> None:
        """Accept no more connections."""
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
                    raise ValueError("the snapshot is no longer stored")
                caller.accept()
                for begin, end in request.get("ranges") or [(0, len(held.view))]:
                    send_bytes(link, held.view[begin:end])
            case "give":
                snapshot = Snapshot.decode(request["snapshot"])
                with self._memory.receiving(snapshot) as target:
                    caller.accept()
                    receive_exactly(link, target)
                    snapshot.check(target)
                caller.accept()
            case other:
                raise ValueError(f"nothing answers {other!r}")


MAX_CONNECTIONS = 32
PAUSE_S = 0.05


class ConnectionServer:
    """Accepts connections from its creation until ``close``, with a thread for each.

    ``attend`` is called with each connection, which is closed when it returns, and may block for
    ``stall_s``. What it raises ends the connection; ValueError, KeyError, TypeError and
    CostoptError are sent as {"refused": why}.
    """

    def __init__(
        self,
        listener: socket.socket,
        attend: Callable[[socket.socket], None],
        *,
        name: str,
        stall_s: float,
    ) -> None:
        self._listener, self._attend, self._stall_s = listener, attend, stall_s
        self._closed = False
        self._room = threading.Semaphore(MAX_CONNECTIONS)
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                link, _ = self._listener.accept()
            except OSError:
                # Closed; or no descriptor is free, or the client is gone: others still come.
                time.sleep(PAUSE_S)
                continue
            self._room.acquire()
            threading.Thread(target=self._receive, args=(link,), daemon=True).start()

    def _receive(self, link: socket.socket) -> None:
        try:
            with link, suppress(OSError, EOFError):
                link.settimeout(self._stall_s)
                self._serve(link)
        finally:
            self._room.release()

    def _serve(self, link: socket.socket) -> None:
        try:
            self._attend(link)
        except (ValueError, KeyError, TypeError) as error:
            send_frame(link, {"refused": str(error)})
        except CostoptError as error:
            send_frame(link, {"refused": error.message})
