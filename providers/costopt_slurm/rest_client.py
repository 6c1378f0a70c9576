"""slurmrestd over its socket or HTTP, each request within a time limit, and what its errors mean.

It serves several versions of its API at once; the newest that is understood here is asked.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderUnavailableError
from costopt.provider.slurm_commands import MAX_SAID, error_of

API_VERSIONS = range(44, 36, -1)
"""0.0.N: from 37 of Slurm 21.08 to 44 of 25.11."""
TYPED_SINCE = 39
"""From this version on (Slurm 23.02) numbers are {"set": true, "infinite": false, "number": 1}."""
UNIX = "unix:"
NOTHING = 9003
"""The accounts have no such job: ESLURM_REST_EMPTY_RESULT, which newer versions give no more."""
NO_REASON = "Unspecified error"
"""What slurmrestd 22.05 says where slurmctld does not answer it, or refuses the token."""


class RestClient:
    """Requests of one user. Safe to share between threads.

    ``address`` is unix:/path or an HTTP URL. The token is read before each request from
    ``token_file``, else from SLURM_JWT: tokens are replaced before they expire.
    """

    def __init__(
        self, address: str, user: str, token_file: str | None = None, timeout_s: float = 20.0
    ) -> None:
        self.address = address
        self.user = user
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._api: int | None = None

    @property
    def api(self) -> int:
        """Return the N of the API's version 0.0.N. Raise ProviderError."""
        if self._api is None:
            for number in API_VERSIONS:
                status, content = self._exchange("GET", f"/slurm/v0.0.{number}/ping")
                if status != http.client.NOT_FOUND:
                    self._parse("ping", status, content)
                    self._api = number
                    break
            else:
                raise BadRequestError(
                    f"{self.address} serves no version of Slurm's API from 0.0.{API_VERSIONS[-1]} "
                    f"to 0.0.{API_VERSIONS[0]}",
                    hint="rest: has to be the address of a slurmrestd of Slurm 21.08 or newer",
                )
        return self._api

    def get(self, path: str, component: str = "slurm", **query: str) -> Mapping[str, Any]:
        """Return the answer to a question. Raise ProviderError; its class says what is known."""
        search = f"?{urlencode(query)}" if query else ""
        return self.send("GET", f"{path}{search}", component=component)

    def send(
        self, method: str, path: str, body: object = None, component: str = "slurm"
    ) -> Mapping[str, Any]:
        """Return the answer to an order. Raise ProviderError."""
        status, content = self._exchange(method, f"/{component}/v0.0.{self.api}/{path}", body)
        return self._parse(path, status, content)

    def has_accounts(self) -> bool:
        """Return whether slurmdbd is behind it: else it serves nothing of the accounts."""
        path = f"/slurmdb/v0.0.{self.api}/diag"
        return self._exchange("GET", path)[0] != http.client.NOT_FOUND

    def _exchange(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        try:
            connection = self._connection()
            try:
                connection.request(method, path, content, self._headers())
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ProviderUnavailableError(
                f"slurmrestd at {self.address}: {error or type(error).__name__}",
                hint="see whether slurmrestd runs, and rest: in the account file",
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        if self.address.startswith(UNIX):
            return _SocketConnection(self.address.removeprefix(UNIX), self._timeout_s)
        parts = urlsplit(self.address)
        is_tls = parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self._timeout_s)

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        path = self._token_file
        said = os.environ.get("SLURM_JWT", "") if path is None else Path(path).read_text("ascii")
        token = said.strip().removeprefix("SLURM_JWT=")
        if token:
            headers |= {"X-SLURM-USER-NAME": self.user, "X-SLURM-USER-TOKEN": token}
        return headers

    def _parse(self, about: str, status: int, content: bytes) -> Mapping[str, Any]:
        try:
            response: Mapping[str, Any] = json.loads(content or b"{}")
            errors = [e for e in response.get("errors") or [] if e.get("error_number") != NOTHING]
            said = "; ".join(filter(None, (e.get("description") or e.get("error") for e in errors)))
        except (ValueError, AttributeError):
            response, errors, said = {}, [], content.decode(errors="replace")
        if status < http.client.BAD_REQUEST and not errors and response:
            return response
        place = f"{about} of slurmrestd at {self.address}"
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise ForbiddenError(
                f"{place}: status {status}",
                hint="`scontrol token` makes a token: name its file with token_file:",
            )
        is_failure = status >= http.client.INTERNAL_SERVER_ERROR
        if not said or (is_failure and any(e.get("error") == NO_REASON for e in errors)):
            raise ProviderUnavailableError(
                f"{place}: status {status}, {said or 'no reason'}",
                hint="see whether slurmctld runs, and whether the token has expired",
            )
        raise error_of(place, said[:MAX_SAID])


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
