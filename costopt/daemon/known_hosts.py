"""The names by which the daemon may be asked over the network.

A page of another site can make a browser ask the daemon under a name whose address changes
meanwhile to the daemon's (DNS rebinding); the browser then takes its answers for that site's own.
Such a request bears the other site's name. An address as the name is never another site's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from costopt.daemon.http.problems import HttpProblemError

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes of platforms ask under names of their own, and what they are answered is no secret."""
LOOPBACK = "localhost"
ANY_BELOW = "*."


class KnownHosts:
    """Answers 421 to a request under a name that is neither loopback, an address nor in ``names``.

    "*.example.com" in ``names`` stands for every name below example.com.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        names = {name.lower() for name in names}
        self._names = frozenset(n for n in names if not n.startswith(ANY_BELOW)) | {LOOPBACK}
        self._suffixes = tuple(n.removeprefix("*") for n in names if n.startswith(ANY_BELOW))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if scope["path"] in HEALTH_PATHS or self._knows(host_name(host)):
            await self._app(scope, receive, send)
            return
        problem = HttpProblemError(
            421,
            f"the daemon does not answer under the name {host[:100]!r}",
            hint="start it with --allowed-host NAME for each name under which it is asked",
        )
        await problem.response()(scope, receive, send)

    def _knows(self, name: str) -> bool:
        return name in self._names or _is_address(name) or name.endswith(self._suffixes)


def host_name(host: str) -> str:
    """The name in a Host header, without the port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    """Also where there is none: HTTP/1.0, which no browser speaks."""
    try:
        return not name or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
