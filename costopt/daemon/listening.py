"""The API and the pages of a running daemon, on its local socket and, if wanted, on the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from costopt.daemon.api import build_app
from costopt.daemon.metrics import Deliveries
from costopt.daemon.pages.routes import page_routes
from costopt.daemon.reach import Reach
from costopt.daemon.server import ApiServer
from costopt.daemon.service import Service
from costopt.daemon.settings import Settings
from costopt.daemon.socket import SOCKET, UNIX, bind_tcp, bind_unix
from costopt.domain.errors import StoreError
from costopt.domain.token import Tokens
from costopt.engine.clock import WallClock

FOLDERS = "folders"
"""In the state directory: folders of jobs from elsewhere, whose relative paths count from here."""


@dataclass(frozen=True, slots=True)
class Listeners:
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
def bound(settings: Settings) -> Iterator[Listeners | None]:
    """Hold the places where the daemon is to answer; None where ``listen`` is None.

    Raises SpecError where nobody can listen there, LedgerError where another daemon does.
    """
    if settings.listen is None:
        yield None
        return
    local, network = settings.state_dir / SOCKET, None
    with ExitStack() as held:
        if settings.listen.startswith(UNIX):
            local = Path(settings.listen.removeprefix(UNIX))
        else:
            network = held.enter_context(bind_tcp(settings.listen))
        yield Listeners(held.enter_context(bind_unix(local)), network)


@contextmanager
def listening(
    listeners: Listeners | None,
    service: Service,
    tokens: Tokens,
    state_dir: Path,
    hooks: Deliveries | None = None,
) -> Iterator[tuple[str, ...]]:
    """Answer while the context lasts; gives where. Raises LedgerError where it cannot begin."""
    if listeners is None:
        yield ()
        return
    reach = Reach(service, tokens, WallClock(), (_folder_for_jobs(state_dir),))
    app = build_app(reach, page_routes(service), hooks)
    server = ApiServer(app, listeners.local, listeners.network)
    server.start()
    try:
        yield listeners.places()
    finally:
        server.stop()


def _folder_for_jobs(state_dir: Path) -> Path:
    folder = (state_dir / FOLDERS).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}") from error
    return folder
