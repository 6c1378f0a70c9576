"""Clients of the APIs of Google Cloud.

A client of Compute Engine is made when it is first needed, one for each collection. The other APIs
are called as JSON over HTTP, without a library for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt.provider.options import OptionModel, Seconds
from costopt_gcp.errors import asking

READ_ATTEMPTS_S = 30.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Timeouts(OptionModel):
    """Seconds after which an unanswered call fails, and between polls of an operation."""

    read_s: Seconds = 30.0
    launch_s: Seconds = 180.0
    poll_s: float = Field(default=1.0, ge=0, le=60)


TIMEOUTS = Timeouts()


class Clients:
    """Safe to share between threads. ``endpoint`` redirects every call, None is Google's own.

    Reads are retried for half a minute while the API is unavailable. Calls that change something
    are sent once: a launch whose answer is lost must be looked up before it is sent again.
    """

    def __init__(
        self,
        project: str | None,
        endpoint: str | None = None,
        timeouts: Timeouts = TIMEOUTS,
        repeat_reads_s: float = READ_ATTEMPTS_S,
    ) -> None:
        self.timeouts = timeouts
        self._named_project = project
        self.endpoint = endpoint
        self._repeat_reads_s = repeat_reads_s
        self._credentials: tuple[Any, str | None] | None = None
        self._clients: dict[str, Any] = {}
        self._session: Any = None
        self._lock = Lock()

    @property
    def project(self) -> str:
        """Return the project, as named or of the credentials. Raise ForbiddenError."""
        if self._named_project is not None:
            return self._named_project
        with self._lock, asking("compute.*", "project"):
            found = self._opened()[1]
        if found is None:
            raise BadRequestError(
                "the Google Cloud credentials name no project",
                hint="write project: in the account file, or set GOOGLE_CLOUD_PROJECT",
            )
        self._named_project = found
        return found

    def of(self, collection: str) -> Any:
        """Return the client of a collection: "instances", "zone_operations", "advice" and so on.

        Raise ForbiddenError if there are no credentials.
        """
        with self._lock:
            if collection not in self._clients:
                with asking("compute.*", collection):
                    self._clients[collection] = self._made(collection)
            return self._clients[collection]

    def session(self) -> Any:
        """Return an HTTP session that sends the credentials. Raise ForbiddenError without them."""
        from google.auth.transport.requests import AuthorizedSession

        with self._lock, asking("compute.*", "credentials"):
            if self._session is None:
                self._session = AuthorizedSession(self._opened()[0])
            return self._session

    def reading(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the arguments ``retry`` and ``timeout`` of a call that changes nothing."""
        from google.api_core import exceptions
        from google.api_core.retry import Retry, if_exception_type

        retry = None
        if self._repeat_reads_s > 0:
            again = if_exception_type(
                exceptions.ServiceUnavailable, exceptions.GatewayTimeout, exceptions.BadGateway
            )
            retry = Retry(predicate=again, initial=0.5, maximum=8.0, timeout=self._repeat_reads_s)
        return {"retry": retry, "timeout": timeout_s or self.timeouts.read_s}

    def once(self) -> dict[str, Any]:
        """Return the arguments ``retry`` and ``timeout`` of a call that changes something."""
        return {"retry": None, "timeout": self.timeouts.launch_s}

    def identity(self) -> str:
        """Return the credentials' identity, as far as they name it. Raise ForbiddenError."""
        with self._lock, asking("compute.*", "credentials"):
            credentials = self._opened()[0]
        return str(getattr(credentials, "service_account_email", None) or "a user's credentials")

    def close(self) -> None:
        """Close the connections; clients are created again when they are needed."""
        with self._lock:
            for client in self._clients.values():
                client.transport.close()
            self._clients.clear()
            if self._session is not None:
                self._session.close()
                self._session = None

    def _made(self, collection: str) -> Any:
        from google.cloud import compute_v1

        name = "".join(part.capitalize() for part in collection.split("_")) + "Client"
        options = {} if self.endpoint is None else {"api_endpoint": self.endpoint}
        credentials = self._opened()[0]
        return getattr(compute_v1, name)(credentials=credentials, client_options=options)

    def _opened(self) -> tuple[Any, str | None]:
        if self._credentials is None:
            self._credentials = self._found()
        return self._credentials

    def _found(self) -> tuple[Any, str | None]:
        if self.endpoint is not None and urlsplit(self.endpoint).hostname in LOOPBACK:
            # An emulator on this machine asks for no credentials, and there are none to send.
            from google.auth.credentials import AnonymousCredentials

            return AnonymousCredentials(), self._named_project
        import google.auth

        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        credentials, project = google.auth.default(scopes=scopes)
        return credentials, project


class WebApi:
    """One API ("cloudbilling.googleapis.com"). Every method raises ProviderError.

    ``permission`` and ``about`` are named in the error, as in ``errors.asking``.
    """

    def __init__(self, clients: Clients, host: str) -> None:
        self._clients = clients
        self._host = host

    def get(
        self, permission: str, about: str, path: str, query: Mapping[str, object] | None = None
    ) -> Mapping[str, Any]:
        """Return the answer to GET of ``path`` ("/v1/services")."""
        return self.ask(permission, about, "GET", path, None, query)

    def post(
        self, permission: str, about: str, path: str, content: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the answer to POST of ``content``."""
        return self.ask(permission, about, "POST", path, content)

    def pages(
        self, permission: str, about: str, path: str, query: Mapping[str, object]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the answers page by page, up to the last page."""
        token = ""
        while True:
            page = self.get(permission, about, path, {**query, "pageToken": token})
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return

    def ask(
        self,
        permission: str,
        about: str,
        method: str,
        path: str,
        content: object = None,
        query: Mapping[str, object] | None = None,
    ) -> Mapping[str, Any]:
        """Return the answer to a request; {} for one without content."""
        from google.api_core.exceptions import from_http_response

        root = self._clients.endpoint or f"https://{self._host}"
        with asking(permission, about):
            response = self._clients.session().request(
                method,
                root.rstrip("/") + path,
                timeout=self._clients.timeouts.read_s,
                params=query,
                **({} if content is None else {"json": content}),
            )
            if response.status_code >= 400:
                raise from_http_response(response)
            document = response.json() if response.content else {}
        if not isinstance(document, dict):
            raise ProviderUnavailableError(
                f"{about}: {root}{path} did not answer with a JSON object"
            )
        return document
