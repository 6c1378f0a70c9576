"""Where a daemon is."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from costopt.domain.errors import SpecError

UNIX = "unix:"
_EXPECTED = "expected unix:PATH, http://HOST:PORT or https://HOST"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """``socket_path`` is set for a local socket, ``host`` and ``port`` for the network."""

    text: str
    socket_path: str | None = None
    host: str = "localhost"
    port: int = 0
    tls: bool = False

    @property
    def is_plaintext(self) -> bool:
        """Whether what is said crosses a network as plain text."""
        return self.socket_path is None and not self.tls and not _is_loopback(self.host)


def parse_address(text: str) -> ServerAddress:
    """``unix:PATH``, ``http://HOST:PORT`` or ``https://HOST``. Raises SpecError."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path or "\0" in path:
            raise SpecError(f"{text!r} is no server", hint=_EXPECTED, code="invalid_address")
        return ServerAddress(text, socket_path=path)
    if "@" in text:
        raise SpecError(
            "a server's address holds no password",
            hint="put the token into a file",
            code="password_in_address",
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SpecError(f"{text!r} is no server", hint=_EXPECTED, code="invalid_address") from None
    if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query:
        raise SpecError(f"{text!r} is no server", hint=_EXPECTED, code="invalid_address")
    return ServerAddress(
        text, host=host, port=port or _PORTS[parts.scheme], tls=parts.scheme == "https"
    )  # fmt: skip


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
