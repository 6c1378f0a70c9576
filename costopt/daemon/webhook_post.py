"""One POST to a receiver of alerts, given up in the end however slowly it is answered."""

from __future__ import annotations

import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from threading import Timer
from urllib.parse import urlsplit

DELIVERY_TIMEOUT_S = 10.0
"""To connect, and again to send and be answered."""


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The HTTP status; redirections are not followed. Raises OSError, HTTPException."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=DELIVERY_TIMEOUT_S)
    # A socket's own timeout begins anew with each byte.
    patience = Timer(DELIVERY_TIMEOUT_S, _cut, [connection])
    try:
        connection.connect()
        patience.start()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        patience.cancel()
        connection.close()


def _cut(connection: HTTPConnection) -> None:
    with suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)
