"""Requests to the API server as JSON; lightkube finds the cluster and the credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from costopt.domain.errors import (
    BadRequestError,
    CostoptError,
    ForbiddenError,
    ProviderError,
    ProviderUnavailableError,
    ThrottledError,
)
from costopt.domain.ports import Clock
from costopt.domain.text import excerpt
from costopt_kubernetes.errors import CONFLICT, MISSING, StatusError, from_status
from costopt_kubernetes.options import KubernetesOptions

PAGE = 500
MAX_RESTARTS = 3
"""A list that outlives its pages (410 Gone) is begun again so often."""
DEFAULT_RETRY_S = 5.0
Object = dict[str, Any]


class ApiClient:
    """Safe to share between threads. Connects at the first request.

    Nothing is repeated here: a creation whose answer is lost is looked up before it is made again.
    Where the server names a time until which it is to be left alone (429, Retry-After), calls raise
    ThrottledError without a request until then.
    """

    def __init__(self, clock: Clock, options: KubernetesOptions) -> None:
        self._clock = clock
        self._options = options
        self._http: Any = None
        self._found_namespace = ""
        self._quiet_until: datetime | None = None
        self._lock = Lock()

    @property
    def namespace(self) -> str:
        """Return the namespace of pods. Raise ForbiddenError or BadRequestError."""
        self._open()
        return self._found_namespace

    @property
    def server(self) -> str:
        """Return the server's address. Raise ForbiddenError or BadRequestError."""
        return str(self._open().base_url)

    def version(self) -> str:
        """Return the server's version. Raise ProviderError."""
        return str(self._request("GET", "version").get("gitVersion"))

    def pods(self, name: str = "") -> str:
        """Return the path of the pods of the namespace, or of one of them."""
        return f"api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    def get(self, path: str) -> Object | None:
        """Return an object, None where there is none. Raise ProviderError."""
        try:
            return self._request("GET", path)
        except StatusError as error:
            if error.reason == MISSING:
                return None
            raise

    def list(self, path: str, **query: str) -> list[Object]:
        """Return all objects of a list, page by page. Raise ProviderError.

        A list whose pages have expired meanwhile is begun again.
        """
        for _ in range(MAX_RESTARTS):
            try:
                return list(self._pages(path, query))
            except _ExpiredError:
                continue
        raise ProviderUnavailableError(f"{path}: the list expires faster than it can be read")

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object once; with ``dry_run`` store nothing. Raise ProviderError."""
        return self._request("POST", path, {"dryRun": "All"} if dry_run else {}, body)

    def annotate(self, path: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Add annotations to the object with this UID. Raise ProviderError."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        self._request("PATCH", path, {}, body, "application/merge-patch+json")

    def delete(self, path: str, uid: str | None = None, grace_s: int | None = None) -> None:
        """Delete an object, unless it is missing or another has its name. Raise ProviderError."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._request("DELETE", path, {}, body)
        except StatusError as error:
            if error.reason not in (MISSING, CONFLICT):
                raise

    def close(self) -> None:
        """Close the connections; they are opened again when they are needed."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        token = ""
        while True:
            more = {"continue": token} if token else {}
            page = self._request("GET", path, {**query, "limit": str(PAGE), **more})
            yield from page["items"] or ()
            token = str(page["metadata"].get("continue") or "")
            if not token:
                return

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        self._check_quiet(path)
        act, http = _act(method, path), self._open()
        with self._asking(act):
            response = http.request(
                method,
                f"/{path}",
                params=dict(query or {}),
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": content},
            )
            if response.status_code < 400:
                document = response.json()
                if not isinstance(document, dict):
                    raise ProviderUnavailableError(f"{path}: the answer is not a JSON object")
                return document
        raise self._refusal(response, act)

    def _refusal(self, response: Any, act: str) -> ProviderError:
        try:
            body = response.json()
        except ValueError:
            body = {"message": response.text}
        if response.status_code == 410:
            return _ExpiredError(f"{self._about}: {act}: the list has expired")
        if response.status_code == 429:
            wait_s = _seconds(response.headers.get("Retry-After", ""))
            self._quiet_until = self._clock.now() + timedelta(seconds=wait_s)
        return from_status(response.status_code, body, act, self._about)

    def _check_quiet(self, path: str) -> None:
        until = self._quiet_until
        if until is not None and self._clock.now() < until:
            raise ThrottledError(
                f"{self._about}: {path}: not asked, for the API server wants to be left alone "
                f"until {until:%H:%M:%S} UTC"
            )

    @property
    def _about(self) -> str:
        return f"cluster {self._options.cluster}"

    @contextmanager
    def _asking(self, act: str) -> Iterator[None]:
        """Raise what goes wrong on the way as ProviderErrors: of these the outcome is unknown."""
        import httpx2
        from lightkube.core.exceptions import ConfigError

        try:
            yield
        except CostoptError:
            raise
        except ConfigError as error:
            raise ForbiddenError(f"{self._about}: no credentials: {error}", hint=LOG_IN) from error
        except (httpx2.HTTPError, OSError) as error:
            why = str(error) or type(error).__name__
            raise ProviderUnavailableError(f"{self._about}: {act}: no answer: {why}") from error
        except Exception as error:
            raise ProviderUnavailableError(
                f"{self._about}: {act}: the answer cannot be read: {type(error).__name__}: "
                f"{excerpt(str(error))}"
            ) from error

    def _open(self) -> Any:
        with self._lock:
            if self._http is None:
                self._http = self._connected()
            return self._http

    def _connected(self) -> Any:
        import httpx2
        from lightkube.config.client_adapter import Client, ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError

        options = self._options
        try:
            named = options.kubeconfig
            found = KubeConfig.from_env() if named is None else KubeConfig.from_file(named)
            config = found.get(options.context)
            timeout = httpx2.Timeout(options.timeout_s)
            if config is None or config.user is None:
                raise BadRequestError(f"{self._about}: the context names no user", hint=LOG_IN)
            http = Client(config, ConnectionParams(timeout=timeout))
        except (ConfigError, OSError, ValueError, LookupError, TypeError) as error:
            why = str(error) or type(error).__name__
            raise BadRequestError(
                f"{self._about}: no usable kubeconfig: {excerpt(why)}", hint=LOG_IN
            ) from error
        self._found_namespace = options.namespace or config.namespace
        return http


LOG_IN = "write kubeconfig: and context: under kubernetes: in the account file, or set KUBECONFIG"


class _ExpiredError(ProviderUnavailableError):
    """410 Gone: the pages of a list, or the version that was asked for, are not kept any more."""


def _act(method: str, path: str) -> str:
    """Return "create pods" for POST …/pods, as RBAC names it."""
    verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
    parts = path.split("/")
    named = method in ("PATCH", "DELETE")
    return f"{verbs.get(method, 'read')} {parts[-2] if named else parts[-1]}"


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 600.0)
    except ValueError:
        return DEFAULT_RETRY_S
