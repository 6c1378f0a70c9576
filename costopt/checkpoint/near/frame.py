"""Letters over a stream: four bytes of length, then one JSON object; descriptors may come along."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

LENGTH = struct.Struct("!I")
MAX_FRAME_BYTES = 16 << 20
"""A manifest has 40 bytes for every MiB of state."""
PIECE_BYTES = 4 << 20


def send_frame(
    link: socket.socket, fields: Mapping[str, Any], descriptor: int | None = None
) -> None:
    """Raises OSError. A descriptor goes over Unix sockets only."""
    body = json.dumps(fields).encode()
    head = LENGTH.pack(len(body))
    if descriptor is None:
        link.sendall(head + body)
    else:
        socket.send_fds(link, [head], [descriptor])
        link.sendall(body)


def receive_frame(link: socket.socket) -> dict[str, Any]:
    """Raises EOFError where the other end is gone, ValueError for no letter, OSError."""
    return _object(_exactly(link, _size(_exactly(link, LENGTH.size))))


def receive_frame_and_descriptor(link: socket.socket) -> tuple[dict[str, Any], int | None]:
    """As ``receive_frame``, over a Unix socket."""
    head, descriptors, _, _ = socket.recv_fds(link, LENGTH.size, 1)
    head += _exactly(link, LENGTH.size - len(head)) if head else b""
    if not head:
        raise EOFError("the other end is gone")
    fields = _object(_exactly(link, _size(head)))
    return fields, descriptors[0] if descriptors else None


def send_bytes(link: socket.socket, view: memoryview) -> None:
    """Piece by piece: a socket's timeout is for a whole call (socket.sendall). Raises OSError."""
    for begin in range(0, len(view), PIECE_BYTES):
        link.sendall(view[begin : begin + PIECE_BYTES])


def receive_exactly(link: socket.socket, target: memoryview) -> None:
    """Fill ``target``. Raises EOFError where the stream ends before, OSError."""
    done = 0
    while done < len(target):
        count = link.recv_into(target[done:])
        if count == 0:
            raise EOFError(f"the stream ended after {done} of {len(target)} bytes")
        done += count


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    receive_exactly(link, memoryview(data))
    return bytes(data)


def _size(head: bytes) -> int:
    size: int = LENGTH.unpack(head)[0]
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a letter of {size} bytes")
    return size


def _object(body: bytes) -> dict[str, Any]:
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return fields
