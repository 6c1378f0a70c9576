"""The API and the pages of a running daemon, on its local socket and, if wanted, on the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def listening(
    service: Service, tokens: Tokens, settings: Settings, hooks: Deliveries | None = None
) -> Iterator[tuple[str, ...]]:
    """Answer while the context lasts; gives where. Nobody answers where ``listen`` is None.

    Raises SpecError where nobody can listen there, LedgerError where another daemon does.
    """
    if settings.listen is None:
        yield ()
        return
    reach = Reach(service, tokens, WallClock(), (_folder_for_jobs(settings.state_dir),))
    app = build_app(reach, page_routes(service), hooks)
    local = settings.state_dir / SOCKET
    network = None
    if settings.listen.startswith(UNIX):
        local = Path(settings.listen.removeprefix(UNIX))
    else:
        network = bind_tcp(settings.listen)
    server = ApiServer(app, bind_unix(local), network)
    server.start()
    try:
        places = [f"{UNIX}{local}"]
        if network is not None:
            host, port = network.getsockname()[:2]
            places.append(f"http://{host}:{port}")
        yield tuple(places)
    finally:
        server.stop()


def _folder_for_jobs(state_dir: Path) -> Path:
    folder = (state_dir / FOLDERS).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}") from error
    return folder
