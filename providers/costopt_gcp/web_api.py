"""The APIs of Google Cloud beside Compute Engine, as JSON over HTTP: they need no library each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from costopt.domain.errors import ProviderUnavailableError
from costopt_gcp.clients import Clients
from costopt_gcp.errors import asking


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
        """What lies at ``path`` ("/v1/services")."""
        return self._ask(permission, about, "GET", path, params=query)

    def post(
        self, permission: str, about: str, path: str, content: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The answer to ``content``."""
        return self._ask(permission, about, "POST", path, json=content)

    def pages(
        self, permission: str, about: str, path: str, query: Mapping[str, object]
    ) -> Iterator[Mapping[str, Any]]:
        """One answer after another, until no page is left."""
        token = ""
        while True:
            page = self.get(permission, about, path, {**query, "pageToken": token})
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return

    def _ask(
        self, permission: str, about: str, method: str, path: str, **what: Any
    ) -> Mapping[str, Any]:
        from google.api_core.exceptions import from_http_response

        root = self._clients.endpoint or f"https://{self._host}"
        with asking(permission, about):
            answer = self._clients.session().request(
                method, root.rstrip("/") + path, timeout=self._clients.timeouts.read_s, **what
            )
            if answer.status_code >= 400:
                raise from_http_response(answer)
            told = answer.json()
        if not isinstance(told, dict):
            raise ProviderUnavailableError(f"{about}: {root}{path} answered what is no object")
        return told
