"""How members of a gang prove to each other that they know its secret.

The server opens with a nonce; the request is signed over it and carries a nonce of its own, over
which every answer is signed. Nothing is encrypted.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from costopt.checkpoint.near.frame import receive_frame, send_frame
from costopt.checkpoint.near.gang_key import GangKey, new_nonce

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
