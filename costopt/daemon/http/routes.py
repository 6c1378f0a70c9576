"""Turns an operation into a route: its scope, documented responses, metrics and log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from costopt.daemon.http.auth import ApiContext, Principal, authenticate
from costopt.daemon.http.problems import (
    MEDIA_TYPE,
    STATUS_DESCRIPTIONS,
    HttpProblemError,
    problem_of,
    read_body,
    spec_errors_as,
)
from costopt.daemon.http.schemas import ProblemDetails
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import JobStatus
from costopt.domain.control import Scope
from costopt.domain.errors import CostoptError

MAX_BODY_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT_S = 20.0

Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

log = logging.getLogger("costopt.daemon.api")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """An authenticated request: who sends it, and what it works on."""

    context: ApiContext
    caller: Principal

    @property
    def service(self) -> DaemonService:
        """The daemon."""
        return self.context.service

    @property
    def reader(self) -> TenantReader:
        """What the caller may see of the daemon."""
        return self.context.reader(self.caller)

    def job(self, name: str) -> JobStatus:
        """Return a job. Raise HttpProblemError 404 unless the caller may see one of this name."""
        with spec_errors_as(404):
            return self.reader.job(name)


async def _api_call(request: Request) -> ApiCall:
    return ApiCall(request.app.state.context, request.state.caller)


Call = Annotated[ApiCall, Depends(_api_call)]


class ApiRoute(APIRoute):
    """An operation of the API: FastAPI's route behind authentication, with metrics and a log.

    ``scope`` is None if no token is needed. ``by_tenants``: a caller bound to a tenant may call it,
    and the operation respects that. ``refusal`` is the status of a SpecError that the operation
    raises. Which other refusals are documented follows from the operation's shape.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        scope: Scope | None,
        by_tenants: bool = False,
        refusal: int = 422,
        **options: Any,
    ) -> None:
        self.scope = scope
        self.by_tenants = by_tenants
        self.refusal = refusal
        super().__init__(path, endpoint, openapi_extra=rights(scope), **options)
        self.summary, self.description = self.description, ""
        for status in self._refusal_statuses():
            self.responses.setdefault(status, problem_response(status))

    def get_route_handler(self) -> Handler:
        """Return FastAPI's handler behind ours."""
        return partial(self._handle, super().get_route_handler())

    async def _handle(self, handler: Handler, request: Request) -> Response:
        began, status = time.perf_counter(), 500
        try:
            response = await self._answer(handler, request)
            status = response.status_code
        finally:
            took_s = time.perf_counter() - began
            request.app.state.http_metrics.count(self.unique_id, status, took_s)
        return response

    async def _answer(self, handler: Handler, request: Request) -> Response:
        caller = None
        try:
            if self.scope is not None:
                caller = await authenticate(request, self.scope, by_tenants=self.by_tenants)
            self._check_query(request)
            request.state.caller = caller
            response = await handler(_JsonRequest(request.scope, request.receive))
        except (HTTPException, RequestValidationError, CostoptError) as error:
            response = problem_of(error, self.refusal).response()
        if caller is not None and request.method != "GET":
            log.info(
                "%s %s by %s: %d", request.method, request.url.path, caller.name,
                response.status_code,
                extra={"operation": self.unique_id, "who": caller.name, **request.path_params},
            )  # fmt: skip
        return response

    def _check_query(self, request: Request) -> None:
        """FastAPI ignores parameters that it does not know, and all but the last of a name."""
        known = [field.alias for field in self.dependant.query_params]
        given = [name for name, _ in request.query_params.multi_items()]
        if not set(given) <= set(known):
            allowed = ", ".join(known) or "none"
            raise HttpProblemError(422, f"unknown query parameter; allowed: {allowed}")
        for name in known:
            if given.count(name) > 1:
                raise HttpProblemError(422, f"{name} was given more than once")

    def _refusal_statuses(self) -> set[int]:
        statuses = {422, 500, 503, self.refusal}
        if self.scope is not None:
            statuses |= {401, 403, 429}
        if self.dependant.path_params:
            statuses.add(404)
        if self.body_field is not None:
            statuses |= {408, 413, 415}
        return statuses


class RouteList(list[ApiRoute]):
    """Routes in the order of the API's document."""

    def add(
        self, route: str, scope: Scope | None, model: type[BaseModel], **options: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Answer ``route``, such as "GET /v1/jobs", with what the decorated function returns, as
        ``model``. The function runs in a thread unless it is a coroutine function; its name is the
        operation's id, its docstring the summary. ``options`` are those of ApiRoute."""
        method, path = route.split()

        def register(endpoint: Endpoint) -> Endpoint:
            about = " ".join((model.__doc__ or "").split())
            self.append(
                ApiRoute(
                    path, endpoint, methods=[method], operation_id=to_camel(endpoint.__name__),
                    scope=scope, response_model=model, response_description=about, **options,
                )
            )  # fmt: skip
            return endpoint

        return register


class _JsonRequest(Request):
    """A request whose body is JSON, within a size and a time."""

    async def body(self) -> bytes:
        """Return the whole body. Raise HttpProblemError as ``read_body``, 415 if it is not JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpProblemError(415, "expected a body of the type application/json")
        if not hasattr(self, "_body"):
            self._body = await read_body(self, MAX_BODY_BYTES, BODY_TIMEOUT_S)
        return self._body

    async def json(self) -> Any:
        """Return the body's value. Raise HttpProblemError as ``body``, 422 if it is malformed."""
        try:
            return json.loads(await self.body())
        except (ValueError, RecursionError) as error:
            raise HttpProblemError(422, f"the body is not JSON: {error}") from None


def rights(scope: Scope | None) -> dict[str, Any] | None:
    """Return the members by which the API's document says that a scope is needed."""
    return None if scope is None else {"security": [{"token": []}], "x-scope": scope.value}


def problem_response(status: int) -> dict[str, Any]:
    """Return the description of a refusal in the API's document."""
    schema = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    return {"description": STATUS_DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
