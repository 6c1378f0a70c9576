"""GitHub's and GitLab's comment APIs on loopback, in the form of their real answers.

Pages hold two comments, so that clients must follow them. ``refuse`` maps a method to the status
and the body that every such request gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

PER_PAGE = 2
NO_RIGHT = {
    "message": "Resource not accessible by integration",
    "documentation_url": "https://docs.github.com/rest/issues/comments#create-an-issue-comment",
    "status": "403",
}
INVALID = {
    "message": "Validation Failed",
    "errors": [{"resource": "IssueComment", "code": "unprocessable", "field": "data"}],
    "documentation_url": "https://docs.github.com/rest",
    "status": "422",
}


@dataclass
class ReviewServer:
    """The comments of one pull or merge request, and the requests that were made."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refuse: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    location: str = ""

    def write(self, body: str, login: str = "github-actions[bot]", kind: str = "Bot") -> int:
        """Add a comment by this user; return its id."""
        number = 1001 + len(self.comments)
        self.comments.append(
            {
                "id": number,
                "node_id": f"IC_{number}",
                "html_url": f"https://github.com/o/r/pull/7#issuecomment-{number}",
                "body": body,
                "user": {"login": login, "id": 41898282, "type": kind},
                "author": {"id": 5 if kind == "Bot" else 6, "username": login},
                "author_association": "NONE",
                "created_at": "2026-11-22T10:00:00Z",
                "updated_at": "2026-11-22T10:00:00Z",
            }
        )
        return number

    @property
    def bodies(self) -> list[str]:
        """The texts of the comments, oldest first."""
        return [comment["body"] for comment in self.comments]


LIST = re.compile(r"/repos/o/r/issues/7/comments|/api/v4/projects/42/merge_requests/7/notes")
ONE = re.compile(r"(?:/repos/o/r/issues/comments|/api/v4/projects/42/merge_requests/7/notes)/(\d+)")


class _Handler(BaseHTTPRequestHandler):
    state: ReviewServer

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        sent = json.loads(self.rfile.read(length)) if length else {}
        self.state.requests.append((method, self.path, dict(self.headers)))
        if self.state.location:
            self._send(302, {}, {"Location": self.state.location})
        elif method in self.state.refuse:
            self._send(*self.state.refuse[method])
        elif parts.path == "/api/v4/user":
            self._send(200, {"id": 5, "username": "ci"})
        elif method == "GET" and LIST.fullmatch(parts.path):
            self._page(int(parse_qs(parts.query)["page"][0]))
        elif method == "POST" and LIST.fullmatch(parts.path):
            self.state.write(sent["body"])
            self._send(201, self.state.comments[-1])
        elif found := ONE.fullmatch(parts.path):
            self._edit(int(found[1]), sent["body"])
        else:
            self._send(404, {"message": "Not Found", "status": "404"})

    def _page(self, page: int) -> None:
        start = (page - 1) * PER_PAGE
        rows = self.state.comments[start : start + PER_PAGE]
        headers = {}
        if start + PER_PAGE < len(self.state.comments):
            headers["Link"] = f'<{self.state.url}/x?page={page + 1}>; rel="next"'
            headers["X-Next-Page"] = str(page + 1)
        self._send(200, rows, headers)

    def _edit(self, number: int, body: str) -> None:
        for comment in self.state.comments:
            if comment["id"] == number:
                comment["body"] = body
                self._send(200, comment)
                return
        self._send(404, {"message": "Not Found", "status": "404"})

    def _send(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def review_server() -> Iterator[ReviewServer]:
    """Yield a server that answers until the context ends."""
    state = ReviewServer()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
