"""Connections to web servers, by way of the proxy that the environment names, if any.

HTTP_PROXY and HTTPS_PROXY are by the scheme of the address, NO_PROXY names hosts to reach directly;
this machine always is.
"""

from __future__ import annotations

import base64
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def connect_to(
    parts: SplitResult, timeout_s: float, headers: dict[str, str]
) -> tuple[HTTPConnection, str]:
    """Return a connection, which is not open yet, and what to request of it.

    ``headers`` of the request gain what the proxy needs. Raise ValueError if the address, or the
    proxy's, is not one of HTTP.
    """
    target = web_target(parts)
    made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    assert parts.hostname is not None
    proxy = _proxy(parts)
    if proxy is None:
        return made(parts.hostname, parts.port, timeout=timeout_s), target
    through = made(proxy.hostname or "", proxy.port, timeout=timeout_s)
    credentials = _credentials(proxy)
    if parts.scheme == "https":
        through.set_tunnel(parts.hostname, parts.port, credentials)
        return through, target
    headers.update(credentials)
    return through, parts.geturl()


def web_target(parts: SplitResult) -> str:
    """Return what to request of the server at an address. Raise ValueError if it is not HTTP's."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http:// or https:// and a host")
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def cut(connection: HTTPConnection) -> None:
    """End a connection that another thread uses."""
    with suppress(OSError, AttributeError):  # it may not be open yet
        connection.sock.shutdown(socket.SHUT_RDWR)


def _proxy(parts: SplitResult) -> SplitResult | None:
    named = getproxies().get(parts.scheme, "")
    host = parts.hostname or ""
    with_port = f"{host}:{parts.port}" if parts.port else host
    if not named or host in LOOPBACK or proxy_bypass(with_port):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        variable = f"{parts.scheme.upper()}_PROXY"
        raise ValueError(f"{variable} is not the address of a proxy as http://HOST:PORT")
    return proxy


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    plain = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(plain.encode()).decode()}"}
