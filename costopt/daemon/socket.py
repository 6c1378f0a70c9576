"""Where the daemon listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from costopt.domain.errors import LedgerError, SpecError

SOCKET = "daemon.sock"
"""In the state directory."""
MAX_PATH_BYTES = 107
"""Bytes of a socket's path on Linux, unix(7): sun_path, less its end."""
UNIX = "unix:"


def bind_unix(path: Path) -> socket.socket:
    """A listener that only this user may connect to (mode 0600).

    What a daemon that was killed left there is replaced. Raises SpecError where the path cannot be
    used, LedgerError where another daemon answers there.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise SpecError(
            f"{path}: is longer than the {MAX_PATH_BYTES} bytes that a socket's path may have",
            hint="name a shorter one: --listen unix:PATH",
            code="too_long",
        )
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Nobody can connect before listen; a umask would be that of all threads.
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise SpecError(f"{path}: cannot listen there: {_reason(error)}") from None
    return listener


def bind_tcp(place: str) -> socket.socket:
    """A listener at "host:port" or "[host]:port"; port 0 takes a free one. Raises SpecError."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise SpecError(
            f"{place!r} is no place to listen at",
            hint="expected HOST:PORT or unix:PATH",
            code="invalid_address",
        )
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, int(port)), family=family, backlog=128)
        # Else a body waits 40 ms for the head's acknowledgement; connections inherit it (tcp(7)).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise SpecError(
            f"{place}: cannot listen there: {_reason(error)}",
            hint="stop what listens there, or give another address with --listen",
        ) from None


def _clear(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_socket():
        raise SpecError(
            f"{path}: is no socket", hint="remove it, or name another path", code="not_a_socket"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(2.0)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SpecError(f"{path}: cannot be used: {_reason(error)}") from None
        else:
            raise LedgerError(
                f"another daemon answers at {path}",
                hint="stop it, or name another state directory",
                code="in_use",
            )


def _reason(error: OSError) -> str:
    """What the system says; Python adds the address to it, which is told already."""
    return (error.strerror or str(error)).partition(" (while ")[0].lower()
