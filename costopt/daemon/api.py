"""The daemon over HTTP: an ASGI application made of operations."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from costopt.daemon.auth import Principal, authenticate_request
from costopt.daemon.control_operations import control_operations
from costopt.daemon.http_metrics import HttpMetrics
from costopt.daemon.job_operations import job_operations
from costopt.daemon.json_body import parse_body
from costopt.daemon.json_form import to_json
from costopt.daemon.metrics import CONTENT_TYPE, Deliveries, MetricsEndpoint
from costopt.daemon.openapi import openapi
from costopt.daemon.operation import ApiCall, Operation, Parameter, ParameterLocation
from costopt.daemon.reach import ApiContext
from costopt.daemon.refusals import HttpProblemError, operation_failed, request_refused, status_of
from costopt.daemon.request_body import read_whole
from costopt.daemon.token_operations import token_operations
from costopt.daemon.unkept import NoStoreMiddleware
from costopt.domain.errors import CostoptError, LedgerError, SpecError
from costopt.domain.token import Scope
from costopt.spec.problem import SpecFileError

MAX_BODY_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT_S = 20.0
MAX_CONCURRENT_REQUESTS = 16
"""Operations that may run at a time; health has a thread of its own besides."""

log = logging.getLogger("costopt.daemon.api")


def build_app(
    reach: ApiContext, pages: Iterable[BaseRoute] = (), hooks: Deliveries | None = None
) -> Starlette:
    """The application. ``pages`` are routes of a dashboard, which find ``reach`` in
    ``request.app.state.reach`` and ask ``authenticate`` who looks."""
    api = _Api(reach, hooks)
    app = Starlette(
        routes=[*api.routes(), *pages],
        middleware=[Middleware(NoStoreMiddleware)],
        exception_handlers={
            HTTPException: _http_error,
            HttpProblemError: _refused,
            CostoptError: _failed,
            Exception: _unexpected,
        },
    )
    app.state.reach = reach
    return app


def operations_of(reach: ApiContext) -> tuple[Operation, ...]:
    """Everything that can be asked and told."""
    return (*job_operations(reach), *control_operations(reach), *token_operations(reach))


async def authenticate(request: Request, scope: Scope, *, by_tenants: bool = False) -> Principal:
    """Who asks, if allowed to. Raises RefusedError: 401 without a known token, 403 without the
    scope, or bound to a tenant where what is asked is of all tenants; 503 where the tokens cannot
    be read, the particulars of which are nobody's who is not known."""
    tokens = request.app.state.reach.tokens
    try:
        known = await to_thread.run_sync(
            authenticate_request, request.scope, request.headers, request.cookies, tokens
        )
    except LedgerError as error:
        log.error("%s", error.message, exc_info=error)
        raise HttpProblemError(503, "the daemon's database cannot be read now") from error
    if known is None:
        raise HttpProblemError(
            401,
            "this needs a token that the daemon knows",
            hint="send it as Authorization: Bearer …; costopt takes it from COSTOPT_TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="costopt"'},
        )
    if not known.allows(scope):
        raise HttpProblemError(
            403,
            f"token {known.name!r} may not do this: it needs the scope {scope.value}",
            hint="ask an admin for another token: costopt token add",
        )
    if known.tenant is not None and not by_tenants:
        raise HttpProblemError(
            403,
            f"token {known.name!r} may not do this: it is bound to tenant {known.tenant!r}",
            hint="ask about the tenant's own jobs: costopt list",
        )
    return known


class _Api:
    """Routes that answer with operations."""

    def __init__(self, reach: ApiContext, hooks: Deliveries | None) -> None:
        self._operations = operations_of(reach)
        self._document = json.dumps(openapi(self._operations)).encode()
        self._metrics = HttpMetrics()
        self._page = MetricsEndpoint(reach.service, self._metrics, hooks)
        self._limiter = CapacityLimiter(MAX_CONCURRENT_REQUESTS)
        self._health_limiter = CapacityLimiter(1)

    def routes(self) -> list[BaseRoute]:
        """One per path."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self._operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        routes: list[BaseRoute] = [
            Route(path, self._endpoint(methods), methods=list(methods))
            for path, methods in by_path.items()
        ]
        return [
            *routes,
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/metrics", self._measured, methods=["GET"]),
        ]

    def _endpoint(self, methods: Mapping[str, Operation]) -> Any:
        async def endpoint(request: Request) -> Response:
            operation = methods["GET" if request.method == "HEAD" else request.method]
            began = time.perf_counter()
            status = 500
            try:
                response = await self._answer(operation, request)
                status = response.status_code
            except HttpProblemError as error:
                status = error.status
                raise
            finally:
                self._metrics.count(operation.id, status, time.perf_counter() - began)
            return response

        return endpoint

    async def _answer(self, operation: Operation, request: Request) -> Response:
        known = Principal("anybody") if operation.scope is None else None
        if operation.scope is not None:
            known = await authenticate(request, operation.scope, by_tenants=operation.by_tenants)
        assert known is not None
        values = _values(operation, request)
        data = await _body(request) if operation.body else b""
        limiter = self._health_limiter if operation.scope is None else self._limiter
        response = await to_thread.run_sync(
            _carry_out, operation, known, values, data, limiter=limiter
        )
        if operation.method != "GET":
            log.info(
                "%s %s by %s: %d", operation.method, request.url.path, known.name,
                response.status_code,
                extra={"operation": operation.id, "who": known.name, **values},
            )  # fmt: skip
        return response

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        return Response(self._document, media_type="application/json")

    async def _measured(self, request: Request) -> Response:
        await authenticate(request, Scope.READ)
        text = await to_thread.run_sync(self._page.text, limiter=self._limiter)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})


def _carry_out(
    operation: Operation, known: Principal, values: Mapping[str, Any], data: bytes
) -> Response:
    """Read, look, act; an error of ours becomes an answer."""
    try:
        call = ApiCall(known, values, parse_body(operation.body, data) if operation.body else None)
        if operation.exists is not None:
            _step(operation.exists, call, 404)
        if operation.check is not None:
            _step(operation.check, call, 422)
        answer = _step(operation.act, call, operation.refusal or 422)
    except _StepError as error:
        return operation_failed(error.cause, error.status)
    except SpecError as error:
        return operation_failed(error, 422)
    form = to_json(answer)
    bad = operation.failing is not None and not all(form.values())
    status = operation.failing if bad and operation.failing else operation.status
    return Response(json.dumps(form).encode(), status, media_type="application/json")


class _StepError(Exception):
    """An error of ours with the status that it has at this step."""

    def __init__(self, cause: CostoptError, status: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.status = status


def _step(act: Any, call: ApiCall, refusal: int) -> object:
    try:
        return act(call)
    except SpecFileError as error:
        raise _StepError(error, 422) from error
    except SpecError as error:
        raise _StepError(error, refusal) from error
    except CostoptError as error:
        status = status_of(error)
        if status >= 500:
            log.error("%s", error.message, exc_info=error)
        raise _StepError(error, status) from error


def _values(operation: Operation, request: Request) -> dict[str, Any]:
    """Every parameter's value. Raises RefusedError: 404 for a path, 422 for a query."""
    named = {
        each.name: each for each in operation.parameters if each.place is ParameterLocation.QUERY
    }
    given = request.query_params
    unknown = [name for name in given if name not in named]
    if unknown:
        allowed = ", ".join(named) or "none"
        raise HttpProblemError(422, f"unknown query parameter; allowed: {allowed}")
    values: dict[str, Any] = {}
    for parameter in operation.parameters:
        if parameter.place is ParameterLocation.PATH:
            values[parameter.name] = _read(parameter, request.path_params[parameter.name], 404)
        elif parameter.name in given:
            if len(given.getlist(parameter.name)) > 1:
                raise HttpProblemError(422, f"{parameter.name} was given more than once")
            values[parameter.name] = _read(parameter, given[parameter.name], 422)
        else:
            values[parameter.name] = parameter.default
    return values


def _read(parameter: Parameter, text: str, status: int) -> Any:
    try:
        return parameter.read(text)
    except ValueError as error:
        raise HttpProblemError(status, f"{parameter.name}: {error}") from None


async def _body(request: Request) -> bytes:
    """The whole body. Raises RefusedError where it is too large, too slow or no JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpProblemError(415, "expected a body of the type application/json")
    return await read_whole(request, MAX_BODY_BYTES, BODY_TIMEOUT_S)


async def _http_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, HTTPException)
    return request_refused(HttpProblemError(error.status_code, error.detail, headers=error.headers))


async def _refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, HttpProblemError)
    return request_refused(error)


async def _failed(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, CostoptError)
    return operation_failed(error, status_of(error))


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises it again, and uvicorn logs it with its traceback.
    log.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
    return request_refused(HttpProblemError(500, "the daemon failed at this; its log says how"))
