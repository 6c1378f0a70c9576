"""The API served: uvicorn in a thread, on the local socket and, if asked for, on the network."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from costopt.daemon.http.auth import LOCAL
from costopt.daemon.impatient import MAX_CONNECTIONS, IdleTimeoutProtocol
from costopt.daemon.known_hosts import KnownHosts
from costopt.domain.errors import LedgerError

GRACE_S = 5
"""How long requests under way may take when the server stops."""
START_TIMEOUT_S = 20.0
MAX_HEADER_BYTES = 64 * 1024
MAX_CONCURRENT_REQUESTS = 16
"""Threads in which operations of the API run; pages and authentication have others."""

log = logging.getLogger("costopt.daemon.server")


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
        """Begin to answer; returns when it does. Raises LedgerError where it cannot."""
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S) or self._failure is not None:
            raise LedgerError(f"the API did not start: {self._failure or 'no answer'}")

    def stop(self) -> None:
        """Let requests under way end, answer no more, and remove the local socket's path."""
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
    """Says when it answers."""

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
                # It counts requests that are ending on connections already closed, too.
                limit_concurrency=2 * MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        await super().startup(sockets)
        self._on_started()


class _Local:
    """Marks requests of the local socket, which need no token."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, LOCAL: True}, receive, send)
