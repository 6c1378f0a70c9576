"""The API and the pages of a running daemon, served on its local socket and over TCP.

uvicorn runs in a thread, on the local socket and, if configured, on the network, with limits on
connections, idle clients and request time.

Requests over the network must use a known host name. A page of another site can make a browser send
requests to the daemon under a name whose address has meanwhile been changed to the daemon's (DNS
rebinding); the browser then treats the responses as that site's own. Such a request has the other
site's name in its Host header. An address as the name never belongs to another site.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import h11
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from costopt.controller.state_dir import SOCKET
from costopt.daemon.http.app import build_app
from costopt.daemon.http.auth import LOCAL, ApiContext
from costopt.daemon.http.problems import HttpProblemError
from costopt.daemon.pages.routes import page_routes
from costopt.daemon.service import DaemonService
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.watch.metrics import Deliveries
from costopt.domain.control import TokenStore
from costopt.domain.errors import LedgerError, SpecError, StoreError
from costopt.engine.loop import WallClock

GRACE_S = 5
"""Seconds that requests in progress may take when the server stops."""
START_TIMEOUT_S = 20.0
MAX_HEADER_BYTES = 64 * 1024
MAX_CONCURRENT_REQUESTS = 16
"""Number of threads that run the API's operations; pages and authentication have others."""

log = logging.getLogger("costopt.daemon.http.server")


class ApiServer:
    """Serves an application until ``stop``; ``local`` and ``network`` are bound listeners.

    Over the network it answers under loopback names, addresses and ``hosts`` only.
    """

    def __init__(
        self,
        app: Starlette,
        local: socket.socket,
        network: socket.socket | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self._listeners: list[tuple[uvicorn.Server, socket.socket]] = []
        self._listeners.append((_Server(_Local(app), self._one_started), local))
        self._path = Path(local.getsockname())
        if network is not None:
            server = _Server(KnownHosts(app, hosts), self._one_started)
            self._listeners.append((server, network))
        self._started = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="costopt-api", daemon=True)

    def start(self) -> None:
        """Start; return when requests are answered. Raise LedgerError if it cannot start."""
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S) or self._failure is not None:
            raise LedgerError(f"the API did not start: {self._failure or 'no answer'}")

    def stop(self) -> None:
        """Finish the requests in progress, stop, and remove the local socket's path."""
        for server, _ in self._listeners:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(GRACE_S + 5)
        for _, listener in self._listeners:
            listener.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.error("the API stopped", exc_info=error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        to_thread.current_default_thread_limiter().total_tokens = MAX_CONCURRENT_REQUESTS
        await asyncio.gather(
            *(server.serve(sockets=[listener]) for server, listener in self._listeners)
        )

    def _one_started(self) -> None:
        if all(server.started for server, _ in self._listeners):
            self._started.set()


class _Server(uvicorn.Server):
    """Reports when it is ready."""

    def __init__(self, app: Any, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                http=IdleTimeoutProtocol,
                ws="none",
                # uvicorn also counts requests that are ending on connections already closed.
                limit_concurrency=2 * MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Override uvicorn's method."""
        await super().startup(sockets)
        self._on_started()


class _Local:
    """Marks requests of the local socket, which need no token."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, LOCAL: True}, receive, send)


FOLDERS = "folders"
"""Folder in the state directory for jobs from elsewhere, whose relative paths count from it."""


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """Bound sockets: a client that connects waits until requests are answered."""

    local: socket.socket
    network: socket.socket | None

    def places(self) -> tuple[str, ...]:
        """Return their addresses, as --server takes them."""
        local = f"{UNIX}{self.local.getsockname()}"
        if self.network is None:
            return (local,)
        host, port = self.network.getsockname()[:2]
        return local, f"http://{host}:{port}"


@contextmanager
def bind_listeners(settings: DaemonSettings) -> Iterator[BoundSockets]:
    """Bind the daemon's listeners: its socket, and the network if configured.

    Raise SpecError if it cannot listen there, LedgerError if another daemon does.
    """
    local, network, listen = settings.state_dir / SOCKET, None, settings.listen
    with ExitStack() as held:
        if listen is not None and listen.startswith(UNIX):
            local = Path(listen.removeprefix(UNIX))
        elif listen is not None:
            network = held.enter_context(bind_tcp(listen))
        yield BoundSockets(held.enter_context(bind_unix(local)), network)


@contextmanager
def serve_api(
    listeners: BoundSockets,
    service: DaemonService,
    tokens: TokenStore,
    settings: DaemonSettings,
    hooks: Deliveries | None = None,
) -> Iterator[tuple[str, ...]]:
    """Serve while the context lasts; yield the addresses. Raise LedgerError if it cannot start."""
    context = ApiContext(service, tokens, WallClock(), (_folder_for_jobs(settings.state_dir),))
    app = build_app(context, page_routes(service), hooks)
    server = ApiServer(app, listeners.local, listeners.network, _hosts(settings))
    server.start()
    try:
        yield listeners.places()
    finally:
        server.stop()


def _hosts(settings: DaemonSettings) -> tuple[str, ...]:
    """Return the accepted host names: those allowed, and the one that the daemon listens at."""
    return (*settings.allowed_hosts, host_name(settings.listen or ""))


def _folder_for_jobs(state_dir: Path) -> Path:
    folder = (state_dir / FOLDERS).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}") from error
    return folder


MAX_PATH_BYTES = 107
"""Maximum length of a socket's path on Linux, unix(7): sun_path without its terminating byte."""
UNIX = "unix:"


def bind_unix(path: Path) -> socket.socket:
    """Return a listener that only this user may connect to (mode 0600).

    The socket of a daemon that was killed is replaced. Raise SpecError if the path cannot be used,
    LedgerError if another daemon answers there.
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
        # No client can connect before listen; a umask would be that of all threads.
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise SpecError(f"{path}: cannot listen there: {_reason(error)}") from None
    return listener


def bind_tcp(place: str) -> socket.socket:
    """Return a listener at "host:port" or "[host]:port"; port 0 selects a free one. Raise
    SpecError."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise SpecError(
            f"{place!r} is not an address to listen at",
            hint="expected HOST:PORT or unix:PATH",
            code="invalid_address",
        )
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, int(port)), family=family, backlog=128)
        # Otherwise a body waits 40 ms for the header's ACK; connections inherit this (tcp(7)).
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
            f"{path}: is not a socket", hint="remove it, or name another path", code="not_a_socket"
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
    """Return the system's reason, without the address that Python appends: the message has it."""
    return (error.strerror or str(error)).partition(" (while ")[0].lower()


HEADER_TIMEOUT_S = 15.0
SEND_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 200


class IdleTimeoutProtocol(H11Protocol):
    """Closes a connection on which no request has begun ``HEADER_TIMEOUT_S`` after it was opened or
    after the last response, or whose client has not read what was sent for ``SEND_TIMEOUT_S``, so
    that idle clients cannot use up all connections.

    Beyond ``MAX_CONNECTIONS`` it closes the one whose client has kept it waiting longest, for a
    request, for the rest of one, or to read its response. One whose request is being processed
    stays.
    """

    _gives_up: asyncio.TimerHandle
    _waits_since: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Override uvicorn's method."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()
        self._wait_for_head()

    def on_response_complete(self) -> None:
        """Override uvicorn's method."""
        super().on_response_complete()
        self._wait_for_head()

    def pause_writing(self) -> None:
        """Override uvicorn's method, called when the transport's send buffer is full."""
        super().pause_writing()
        self._gives_up = self.loop.call_later(SEND_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Override uvicorn's method."""
        super().resume_writing()
        self._gives_up.cancel()

    @property
    def _waits_for_client(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.flow.write_paused

    def _make_room(self) -> None:
        others: list[Any] = [each for each in self.connections if each is not self]
        waiting = [each for each in others if each._waits_for_client]
        if waiting:
            longest = min(waiting, key=lambda each: each._waits_since)
            self.connections.discard(longest)
            longest.transport.abort()

    def _wait_for_head(self) -> None:
        self._waits_since = self.loop.time()
        self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_idle_since, self.cycle)

    def _close_if_idle_since(self, cycle: Any) -> None:
        idle = self.cycle is cycle and (cycle is None or cycle.response_complete)
        if idle and not self.transport.is_closing():
            self.transport.close()


HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Platforms' probes use host names of their own, and the responses are not secret."""
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
    """Return the name in a Host header, without the port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    """Return whether the name is an address or empty: HTTP/1.0, which no browser uses."""
    try:
        return not name or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
