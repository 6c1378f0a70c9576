"""A client for the daemon's HTTP API: the daemon's address, the requests, and their errors.

An error carries the exit code with which the command line ends.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from costopt.domain.errors import CostoptError, SpecError

UNIX = "unix:"
_EXPECTED = "expected unix:PATH, http://HOST:PORT or https://HOST"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A daemon's address: ``socket_path`` for a local socket, ``host`` and ``port`` for the
    network."""

    text: str
    socket_path: str | None = None
    host: str = "localhost"
    port: int = 0
    tls: bool = False

    @property
    def is_plaintext(self) -> bool:
        """Whether requests cross a network unencrypted."""
        return self.socket_path is None and not self.tls and not _is_loopback(self.host)


def parse_address(text: str) -> ServerAddress:
    """Return ``unix:PATH``, ``http://HOST:PORT`` or ``https://HOST``, parsed. Raise SpecError."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path or "\0" in path:
            raise SpecError(
                f"{text!r} is not a daemon's address", hint=_EXPECTED, code="invalid_address"
            )
        return ServerAddress(text, socket_path=path)
    if "@" in text:
        raise SpecError(
            "a daemon's address must not contain a password",
            hint="put the token into a file",
            code="password_in_address",
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SpecError(
            f"{text!r} is not a daemon's address", hint=_EXPECTED, code="invalid_address"
        ) from None
    if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query:
        raise SpecError(
            f"{text!r} is not a daemon's address", hint=_EXPECTED, code="invalid_address"
        )
    return ServerAddress(
        text, host=host, port=port or _PORTS[parts.scheme], tls=parts.scheme == "https"
    )  # fmt: skip


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


RESPONSE_TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 256 * 1024 * 1024

Answer = dict[str, Any]


class DaemonClient:
    """Each request opens a connection of its own; may be used from several threads."""

    def __init__(
        self,
        address: ServerAddress,
        token: str | None = None,
        *,
        answer_s: float = RESPONSE_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._token = token
        self._answer_s = answer_s

    def get(self, *path: str, **query: object) -> Answer:
        """Return the daemon's response to a GET of ``/v1/`` and the parts of the path.

        A query value of None is left out. Raise ApiError for a refusal, and DaemonUnreachableError
        if no daemon answers.
        """
        return self.request("GET", path, query=query)

    def get_all(self, *path: str, rows: str, **query: object) -> list[Answer]:
        """Return the rows under this name of all pages of a list. Raise as ``get``."""
        found: list[Answer] = []
        cursor = None
        while True:
            page = self.get(*path, **{"limit": 1000, **query, "cursor": cursor})
            found += page[rows]
            cursor = page.get("next")
            if cursor is None:
                return found

    def send(self, method: str, *path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a command and return the response. Raise as ``get``."""
        return self.request(method, path, body=body)

    def request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send one request and return the response. Raise as ``get``."""
        target = "/v1/" + "/".join(quote(part, safe="") for part in path)
        given = {key: value for key, value in (query or {}).items() if value is not None}
        if given:
            target += f"?{urlencode(given)}"
        status, data = self._exchange(method, target, body)
        answer = _parsed(data, self._address)
        if status >= 400:
            raise ApiError.of(status, answer)
        return answer

    def _exchange(
        self, method: str, target: str, body: Mapping[str, object] | None
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "User-Agent": "costopt"}
        if self._token is not None and self._address.socket_path is None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DaemonUnreachableError(self._address.text, error) from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        address = self._address
        if address.socket_path is not None:
            return _UnixConnection(address.socket_path, self._answer_s)
        kind = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
        return kind(address.host, address.port, timeout=self._answer_s)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, answer_s: float) -> None:
        super().__init__("localhost", timeout=answer_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _parsed(data: bytes, address: ServerAddress) -> Answer:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise DaemonUnreachableError(address.text, "the server there is not a costopt daemon")
    return answer


class ApiError(CostoptError):
    """The daemon refused the request; ``status`` is the HTTP status."""

    def __init__(self, message: str, *, hint: str | None, status: int, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.exit_code = exit_code  # type: ignore[misc]

    @classmethod
    def of(cls, status: int, answer: Mapping[str, Any]) -> ApiError:
        """Return the error of a response, from those of its fields that are present."""
        code, hint = answer.get("exit_code"), answer.get("hint")
        return cls(
            str(answer.get("detail") or f"the daemon answered with HTTP status {status}"),
            hint=str(hint) if hint else None,
            status=status,
            exit_code=code if isinstance(code, int) and 0 < code < 126 else 1,
        )


class DaemonUnreachableError(CostoptError):
    """No daemon answers at its address, or another server does."""

    def __init__(self, address: str, why: object) -> None:
        reason = getattr(why, "strerror", None) or str(why) or type(why).__name__
        super().__init__(
            f"no daemon answers at {address}: {str(reason).lower()}",
            hint="start one with costopt daemon, or name it with --server or COSTOPT_SERVER",
        )
