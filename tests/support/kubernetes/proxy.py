"""A proxy in front of the real API server, which spoils answers and watches requests go by."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from tests.support.kubernetes.api_server import Connections

HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "accept-encoding"})


@dataclass(frozen=True)
class Sent:
    """A request; ``path`` is without its query."""

    method: str
    path: str
    query: str


@dataclass(frozen=True)
class Reply:
    """What the server answered, or what the proxy says in its place."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class DropError(ConnectionError):
    """Close the connection without an answer."""


Forward = Callable[[], Reply]
Fault = Callable[[Sent, Forward], Reply]


def refuse(status: int, reason: str, **headers: str) -> Fault:
    """Answer with a Status object; nothing happens."""

    def refused(sent: Sent, forward: Forward) -> Reply:
        said = {"kind": "Status", "status": "Failure", "reason": reason, "code": status,
                "message": f"{reason}, says the test"}  # fmt: skip
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Reply(status, json.dumps(said).encode(), named)

    return refused


def lose_reply(sent: Sent, forward: Forward) -> Reply:
    """Do what is asked, and close the connection without an answer."""
    forward()
    raise DropError


def lose_request(sent: Sent, forward: Forward) -> Reply:
    """Close the connection; nothing happens."""
    raise DropError


def cut(sent: Sent, forward: Forward) -> Reply:
    """Answer with the first half of the answer."""
    reply = forward()
    return Reply(reply.status, reply.body[: len(reply.body) // 2], reply.headers)


def garbage(sent: Sent, forward: Forward) -> Reply:
    """Answer with a page of HTML, as a load balancer does."""
    return Reply(200, b"<html>upstream</html>")


class ApiProxy:
    """Listens on the loopback without TLS. ``fault`` is asked about each request; None: forward.

    ``after`` is called after each request that was forwarded, before it is answered.
    """

    def __init__(self, connections: Connections) -> None:
        self._server_side = connections
        self.sent: list[Sent] = []
        self.fault: Callable[[Sent], Fault | None] = lambda _: None
        self.after: Callable[[Sent], None] = lambda _: None
        self._lock = Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                proxy._answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def reset(self) -> None:
        """Forward everything."""
        self.sent.clear()
        self.fault, self.after = (lambda _: None), (lambda _: None)

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        sent = Sent(handler.command, path.strip("/"), query)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))

        def forward() -> Reply:
            reply = self._forward(handler, body)
            self.after(sent)
            return reply

        with self._lock:
            self.sent.append(sent)
            fault = self.fault(sent)
        try:
            reply = forward() if fault is None else fault(sent, forward)
        except DropError:
            handler.close_connection = True
            handler.connection.close()
            return
        with suppress(OSError):
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(reply.body)))
            handler.end_headers()
            handler.wfile.write(reply.body)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> Reply:
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in HOP}
        status, answered, said = self._server_side.ask(
            handler.command, handler.path, body or None, headers
        )
        return Reply(status, said, {k: v for k, v in answered.items() if k.lower() not in HOP})
