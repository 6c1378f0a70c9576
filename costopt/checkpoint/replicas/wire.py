"""Framing and HMAC handshake.

Letters over a stream: four bytes of length, then one JSON object; descriptors may come along.

How the nodes of one gang know each other: by a secret that each generation gets anew.

How members of a gang prove to each other that they know its secret.

The server opens with a nonce; the request is signed over it and carries a nonce of its own, over
which every answer is signed. Nothing is encrypted.
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


def new_nonce() -> str:
    """Never the same twice, so that no answer can be played again."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class GangKey:
    """``secret`` comes with the gang's letter, and is good for its generation only."""

    job: str
    generation: int
    secret: str = field(repr=False)

    def mac(self, nonce: str, fields: Mapping[str, Any]) -> str:
        """HMAC-SHA256 (RFC 2104) over the other side's nonce and the letter."""
        text = json.dumps([nonce, fields], sort_keys=True).encode()
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()

    def sign(self, nonce: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The letter with its MAC."""
        return {**fields, "mac": self.mac(nonce, fields)}

    def verify(self, nonce: str, letter: dict[str, Any]) -> dict[str, Any]:
        """The inverse; raises ValueError where it was not signed with this key."""
        fields = {name: value for name, value in letter.items() if name != "mac"}
        if not hmac.compare_digest(self.mac(nonce, fields), str(letter.get("mac", ""))):
            raise ValueError("the letter is not signed with the gang's secret")
        return fields


HANDSHAKE_TIMEOUT_S = 10.0
"""For all of a request, so that strangers who send it byte by byte keep nobody waiting for long."""


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer:
    """Who has proved that it knows the secret, and what it asks."""

    link: socket.socket
    key: GangKey
    request: dict[str, Any]

    def accept(self, **fields: Any) -> None:
        """Answer. Raises OSError."""
        nonce = str(self.request["nonce"])
        send_frame(self.link, self.key.sign(nonce, {"ok": True, **fields}))


def accept_peer(link: socket.socket, key: GangKey | None) -> AuthenticatedPeer | None:
    """The server's side. None for who knows of a later generation than this node, which was told
    so; with ``key`` None that is everybody.

    Raises ValueError or KeyError for who does not know the secret or is of an older generation,
    OSError, EOFError.
    """
    nonce = new_nonce()
    send_frame(link, {"nonce": nonce})
    with _hung_up_after(HANDSHAKE_TIMEOUT_S, link):
        letter = receive_frame(link)
    if key is None or _is_later(letter, key):
        send_frame(link, {"later": True})
        return None
    return AuthenticatedPeer(link, key, _opened(letter, key, nonce))


def authenticate(
    link: socket.socket, key: GangKey, request: dict[str, Any]
) -> tuple[str, dict[str, Any] | None]:
    """The client's side: our nonce, and the answer as ``verify_reply`` gives it."""
    theirs, ours = str(receive_frame(link)["nonce"]), new_nonce()
    fields = {**request, "job": key.job, "generation": key.generation, "nonce": ours}
    send_frame(link, key.sign(theirs, fields))
    return ours, verify_reply(ours, link, key)


def verify_reply(nonce: str, link: socket.socket, key: GangKey) -> dict[str, Any] | None:
    """An answer; None where the generation is not known there yet.

    Raises ValueError where it is a refusal or not signed, KeyError, OSError, EOFError.
    """
    letter = receive_frame(link)
    if letter.get("later"):
        return None
    if "refused" in letter:
        raise ValueError(str(letter["refused"]))
    return key.verify(nonce, letter)


@contextmanager
def _hung_up_after(seconds: float, link: socket.socket) -> Iterator[None]:
    """A socket's timeout is for each piece that comes, not for the whole."""

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


def _is_later(letter: dict[str, Any], key: GangKey) -> bool:
    return letter.get("job") == key.job and int(letter.get("generation", 0)) > key.generation


def _opened(letter: dict[str, Any], key: GangKey, nonce: str) -> dict[str, Any]:
    if letter.get("job") != key.job:
        raise ValueError(f"this node trains {key.job}")
    if int(letter.get("generation", 0)) < key.generation:
        raise ValueError(
            f"generation {letter['generation']} is over: generation {key.generation} trains"
        )
    return key.verify(nonce, letter)
