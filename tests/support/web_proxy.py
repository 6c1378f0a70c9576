"""An HTTP proxy on loopback, which notes what it is asked for and answers itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class WebProxy:
    """Requests as "METHOD TARGET", and their headers; ``body`` answers those of http."""

    port: int = 0
    body: bytes = b"{}"
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Return the proxy's address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def web_proxy() -> Iterator[WebProxy]:
    """A proxy that refuses tunnels with 502, and answers other requests itself."""
    proxy = WebProxy()

    class Handler(BaseHTTPRequestHandler):
        def _note(self) -> None:
            proxy.requests.append(f"{self.command} {self.path}")
            proxy.headers.append(dict(self.headers))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def do_CONNECT(self) -> None:
            self._note()
            self.send_error(502)

        def do_GET(self) -> None:
            self._note()
            self.send_response(200)
            self.send_header("Content-Length", str(len(proxy.body)))
            self.end_headers()
            self.wfile.write(proxy.body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        with suppress(OSError):
            server.socket.shutdown(socket.SHUT_RDWR)
        server.shutdown()
        server.server_close()
        thread.join()
