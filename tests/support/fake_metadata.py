"""A metadata server on the loopback that speaks as AWS's and Google's do."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from costopt.agent.notices.aws import TOKEN_PATH
from costopt.agent.notices.gcp import ROOT


class FakeMetadata(ThreadingHTTPServer):
    """Its values are what a test says; ``status`` fails every question, ``hang_s`` delays it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.token = "first"
        self.tokens_given = 0
        self.status: int | None = None
        self.hang_s = 0.0
        self.asked: list[str] = []
        self.changed = threading.Condition()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def say(self, path: str, value: str) -> None:
        """Answer this from now on; who waits for a change is answered at once."""
        with self.changed:
            self.values[path] = value
            self.changed.notify_all()

    def handle_error(self, *_: object) -> None:
        """Who asked has gone: no matter."""

    def stop(self) -> None:
        """Close the port."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeMetadata

    def do_PUT(self) -> None:
        if self.path == TOKEN_PATH and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
            self.server.tokens_given += 1
            self._reply(200, self.server.token)
        else:
            self._reply(400, "")

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        time.sleep(self.server.hang_s)
        if self.server.status is not None:
            self._reply(self.server.status, "")
        elif self.path.startswith(ROOT):
            self._google()
        elif self.headers["X-aws-ec2-metadata-token"] != self.server.token:
            self._reply(401, "")
        elif self.path in self.server.values:
            self._reply(200, self.server.values[self.path])
        else:
            self._reply(404, "")

    def _google(self) -> None:
        if self.headers["Metadata-Flavor"] != "Google":
            self._reply(403, "")
            return
        parts = urlsplit(self.path)
        name, query = parts.path.removeprefix(ROOT), parse_qs(parts.query)
        values = self.server.values
        with self.server.changed:
            if "wait_for_change" in query:
                self.server.changed.wait_for(
                    lambda: f"e-{values[name]}" != query["last_etag"][0],
                    timeout=float(query["timeout_sec"][0]),
                )
            value = values[name]
        self._reply(200, value, ETag=f"e-{value}")

    def _reply(self, status: int, text: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass
