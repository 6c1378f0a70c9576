"""Messages between a trainer and the process that writes its checkpoints."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

MAX_BYTES = 1 << 16


class Channel:
    """One end. A message is a JSON object, whole or not at all, with a descriptor or none."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Our end, and the other for a child process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Raises OSError where the other end is gone."""
        given = [] if descriptor is None else [descriptor]
        socket.send_fds(self.end, [json.dumps(message).encode()], given)

    def waits(self, timeout_s: float | None) -> bool:
        """Whether a message, or the end, can be received within ``timeout_s`` (None: for ever)."""
        ready, _, _ = select.select([self.end], [], [], timeout_s)
        return bool(ready)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        """The next message and its descriptor, or None where the other end is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.end, MAX_BYTES, 1)
        except ConnectionResetError:
            return None
        if not data:
            return None
        message: dict[str, Any] = json.loads(data)
        return message, descriptors[0] if descriptors else None

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self.end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self.end.close()
