"""The API and the pages of a running daemon, on its local socket and, if wanted, on the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from costopt.daemon.http.app import build_app
from costopt.daemon.http.auth import ApiContext
from costopt.daemon.known_hosts import host_name
from costopt.daemon.metrics import Deliveries
from costopt.daemon.pages.routes import page_routes
from costopt.daemon.server import ApiServer
from costopt.daemon.service import DaemonService
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.socket import SOCKET, UNIX, bind_tcp, bind_unix
from costopt.domain.control import TokenStore
from costopt.domain.errors import StoreError
from costopt.engine.loop import WallClock

FOLDERS = "folders"
"""In the state directory: folders of jobs from elsewhere, whose relative paths count from here."""


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """Bound sockets: who connects waits until somebody answers."""

    local: socket.socket
    network: socket.socket | None

    def places(self) -> tuple[str, ...]:
        """Where they are, as --server takes it."""
        local = f"{UNIX}{self.local.getsockname()}"
        if self.network is None:
            return (local,)
        host, port = self.network.getsockname()[:2]
        return local, f"http://{host}:{port}"


@contextmanager
def bind_listeners(settings: DaemonSettings) -> Iterator[BoundSockets]:
    """Hold the places where the daemon is to answer: its socket, and the network where asked for.

    Raises SpecError where it cannot listen there, LedgerError where another daemon does.
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
    """Answer while the context lasts; gives where. Raises LedgerError where it cannot begin."""
    context = ApiContext(service, tokens, WallClock(), (_folder_for_jobs(settings.state_dir),))
    app = build_app(context, page_routes(service), hooks)
    server = ApiServer(app, listeners.local, listeners.network, _hosts(settings))
    server.start()
    try:
        yield listeners.places()
    finally:
        server.stop()


def _hosts(settings: DaemonSettings) -> tuple[str, ...]:
    """The names under which it is asked: those allowed, and the one that it listens at."""
    return (*settings.allowed_hosts, host_name(settings.listen or ""))


def _folder_for_jobs(state_dir: Path) -> Path:
    folder = (state_dir / FOLDERS).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}") from error
    return folder
