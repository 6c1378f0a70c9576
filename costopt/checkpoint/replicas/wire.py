"""The wire protocol of a gang's nodes: framing of messages, and authentication by HMAC.

A message on a stream is four bytes of length, then one JSON object; descriptors may accompany it.
The nodes of one gang authenticate each other by a secret that is new in each generation: the server
opens with a nonce; the request is signed over it and carries a nonce of its own, over which every
response is signed. Nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

LENGTH = struct.Struct("!I")
MAX_FRAME_BYTES = 16 << 20
"""A manifest has 40 bytes for every MiB of state."""
PIECE_BYTES = 4 << 20


def send_frame(
    link: socket.socket, fields: Mapping[str, Any], descriptor: int | None = None
) -> None:
    """Send one message. Raise OSError. A descriptor can be sent over Unix sockets only."""
    body = json.dumps(fields).encode()
    head = LENGTH.pack(len(body))
    if descriptor is None:
        link.sendall(head + body)
    else:
        socket.send_fds(link, [head], [descriptor])
        link.sendall(body)


def receive_frame(link: socket.socket) -> dict[str, Any]:
    """Return one message. Raise EOFError at the end, ValueError if malformed, or OSError."""
    return _object(_exactly(link, _size(_exactly(link, LENGTH.size))))


def receive_frame_and_descriptor(link: socket.socket) -> tuple[dict[str, Any], int | None]:
    """Return a message as ``receive_frame`` does, with its descriptor, over a Unix socket."""
    head, descriptors, _, _ = socket.recv_fds(link, LENGTH.size, 1)
    head += _exactly(link, LENGTH.size - len(head)) if head else b""
    if not head:
        raise EOFError("the peer closed the connection")
    fields = _object(_exactly(link, _size(head)))
    return fields, descriptors[0] if descriptors else None


def send_bytes(link: socket.socket, view: memoryview) -> None:
    """Send in pieces: a socket's timeout covers a whole call (socket.sendall). Raise OSError."""
    for begin in range(0, len(view), PIECE_BYTES):
        link.sendall(view[begin : begin + PIECE_BYTES])


def receive_exactly(link: socket.socket, target: memoryview) -> None:
    """Fill ``target``. Raise EOFError if the stream ends before, or OSError."""
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
    # Before the memory for it is reserved: the peer is not authenticated yet.
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {size} bytes is too large")
    return size


def _object(body: bytes) -> dict[str, Any]:
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("the message is not a JSON object")
    return fields


def new_nonce() -> str:
    """Return a text that never repeats, so that no response can be replayed."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class GangKey:
    """The key of one generation; ``secret`` comes with the gang's message."""

    job: str
    generation: int
    secret: str = field(repr=False)

    def mac(self, nonce: str, fields: Mapping[str, Any]) -> str:
        """Return HMAC-SHA256 (RFC 2104) over the other side's nonce and the message."""
        text = json.dumps([nonce, fields], sort_keys=True).encode()
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()

    def sign(self, nonce: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the message with its MAC."""
        return {**fields, "mac": self.mac(nonce, fields)}

    def verify(self, nonce: str, message: dict[str, Any]) -> dict[str, Any]:
        """Return the message without its MAC. Raise ValueError if another key signed it."""
        fields = {name: value for name, value in message.items() if name != "mac"}
        # In constant time: how far two MACs agree must not show in how long this takes.
        if not hmac.compare_digest(self.mac(nonce, fields), str(message.get("mac", ""))):
            raise ValueError("the message is not signed with the gang's secret")
        return fields


HANDSHAKE_TIMEOUT_S = 10.0
"""For the whole request, so that a client that sends it byte by byte cannot delay others."""


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer:
    """A peer that has proved that it knows the secret, and its request."""

    link: socket.socket
    key: GangKey
    request: dict[str, Any]

    def accept(self, **fields: Any) -> None:
        """Send a response. Raise OSError if the connection failed."""
        nonce = str(self.request["nonce"])
        send_frame(self.link, self.key.sign(nonce, {"ok": True, **fields}))


def accept_peer(link: socket.socket, key: GangKey | None) -> AuthenticatedPeer | None:
    """Authenticate a client; None if its generation is later than this node's.

    The client is notified of that; with ``key`` None every client's is later. Raise ValueError or
    KeyError if the client does not know the secret or is of an older generation, OSError or
    EOFError if the connection fails.
    """
    nonce = new_nonce()
    send_frame(link, {"nonce": nonce})
    with _hung_up_after(HANDSHAKE_TIMEOUT_S, link):
        message = receive_frame(link)
    if key is None or _is_later(message, key):
        send_frame(link, {"later": True})
        return None
    return AuthenticatedPeer(link, key, _opened(message, key, nonce))


def authenticate(
    link: socket.socket, key: GangKey, request: dict[str, Any]
) -> tuple[str, dict[str, Any] | None]:
    """Authenticate to a server: return our nonce, and the response as from ``verify_reply``."""
    theirs, ours = str(receive_frame(link)["nonce"]), new_nonce()
    fields = {**request, "job": key.job, "generation": key.generation, "nonce": ours}
    send_frame(link, key.sign(theirs, fields))
    return ours, verify_reply(ours, link, key)


def verify_reply(nonce: str, link: socket.socket, key: GangKey) -> dict[str, Any] | None:
    """Return a response; None if the server does not know the generation yet.

    Raise ValueError if it is a refusal or not signed, KeyError, OSError or EOFError.
    """
    message = receive_frame(link)
    if message.get("later"):
        return None
    if "refused" in message:
        raise ValueError(str(message["refused"]))
    return key.verify(nonce, message)


@contextmanager
def _hung_up_after(seconds: float, link: socket.socket) -> Iterator[None]:
    """A socket's timeout is for each piece that arrives, not for the whole."""

    def hang_up() -> None:
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_later(message: dict[str, Any], key: GangKey) -> bool:
    return message.get("job") == key.job and int(message.get("generation", 0)) > key.generation


def _opened(message: dict[str, Any], key: GangKey, nonce: str) -> dict[str, Any]:
    if message.get("job") != key.job:
        raise ValueError(f"this node trains {key.job}")
    if int(message.get("generation", 0)) < key.generation:
        raise ValueError(
            f"generation {message['generation']} is over: generation {key.generation} trains"
        )
    return key.verify(nonce, message)
