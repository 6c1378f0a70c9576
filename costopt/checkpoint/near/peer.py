"""Another node's memory, as this one reaches it: give it a snapshot, or fetch one.

The bytes of a snapshot follow a signed request or answer as they are; the digests in the signed
manifest tell whether they are right.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from costopt.checkpoint.near.frame import receive_exactly, send_bytes
from costopt.checkpoint.near.gang_key import GangKey
from costopt.checkpoint.near.handshake import authenticate, verify_reply
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.domain.errors import CheckpointError

CONNECT_S = 2.0
IO_TIMEOUT_S = 5.0
"""A peer that takes or gives no byte for so long is gone."""
PATIENCE_S = 3.0
"""A peer may hear of a new generation later than this node."""
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class PeerClient:
    """``address`` is "host:port"; ``zone`` "" where it is unknown."""

    node: str
    address: str
    zone: str = ""

    def send(self, key: GangKey, snapshot: Snapshot, view: memoryview) -> None:
        """Put a snapshot into its memory; when this returns it has it, verified.

        Raises CheckpointError: gone, refused, of an older generation, no room.
        """
        with self._asked(key, {"op": "give", "snapshot": snapshot.encode()}) as (link, nonce, _):
            send_bytes(link, view)
            verify_reply(nonce, link, key)

    def snapshots(self, key: GangKey) -> tuple[Snapshot, ...]:
        """What it holds. Raises CheckpointError."""
        with self._asked(key, {"op": "list"}) as (_, _, answer):
            return tuple(Snapshot.decode(fields) for fields in answer["snapshots"])

    def fetch(self, key: GangKey, snapshot: Snapshot, target: memoryview) -> None:
        """Its bytes, verified. Raises CheckpointError."""
        with self._asked(key, {"op": "fetch", "snapshot": snapshot.encode()}) as (link, _, _):
            receive_exactly(link, target)
            snapshot.check(target)

    @contextmanager
    def _asked(
        self, key: GangKey, request: dict[str, Any]
    ) -> Iterator[tuple[socket.socket, str, dict[str, Any]]]:
        """A connection on which the request was granted, our nonce, and the answer."""
        end = time.monotonic() + PATIENCE_S
        try:
            while True:
                with self._connected() as link:
                    nonce, answer = authenticate(link, key, request)
                    if answer is not None:
                        yield link, nonce, answer
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
