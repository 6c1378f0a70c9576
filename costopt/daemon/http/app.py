"""The daemon's ASGI application: the API's operations, its document, metrics and the pages."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from costopt import __version__
from costopt.daemon.http.auth import ApiContext, authenticate
from costopt.daemon.http.control import CONTROL_OPERATIONS
from costopt.daemon.http.jobs import JOB_OPERATIONS
from costopt.daemon.http.problems import problem_of
from costopt.daemon.http.request_limits import RequestLimits
from costopt.daemon.http.routes import ApiRoute, problem_response, rights
from costopt.daemon.http.schemas import ProblemDetails
from costopt.daemon.watch.metrics import CONTENT_TYPE, Deliveries, HttpMetrics, MetricsEndpoint
from costopt.domain.control import Scope
from costopt.domain.errors import CostoptError

MAX_CONCURRENT_AUTHENTICATIONS = 8
API_DESCRIPTION = (
    "Submit jobs to a costopt daemon, see what it does and control it. Over the network every "
    "request carries a bearer token; over the daemon's local socket, which only its owner can "
    "open, none is needed. x-scope names the scope that an operation needs; admin includes "
    "submit, submit includes read. Times are UTC. What is unknown is null."
)

log = logging.getLogger("costopt.daemon.api")


def build_app(
    context: ApiContext, pages: Iterable[BaseRoute] = (), hooks: Deliveries | None = None
) -> FastAPI:
    """Return the application. ``pages`` are routes of a dashboard, which find ``context`` in
    ``request.app.state.context`` and call ``authenticate``."""
    app = FastAPI(
        openapi_url=None,
        routes=[*api_operations(), *_document_routes(), *pages],
        middleware=[Middleware(_Headers)],
        exception_handlers={
            HTTPException: _http_error,
            CostoptError: _http_error,
            Exception: _unexpected,
        },
    )
    app.state.context = context
    app.state.http_metrics = HttpMetrics()
    app.state.metrics = MetricsEndpoint(context.service, app.state.http_metrics, hooks)
    app.state.request_limits = RequestLimits(context.service.account.tenants)
    app.state.auth_limiter = CapacityLimiter(MAX_CONCURRENT_AUTHENTICATIONS)
    return app


def api_operations() -> tuple[ApiRoute, ...]:
    """Return every operation, in the order of the document."""
    return (*JOB_OPERATIONS, *CONTROL_OPERATIONS)


@cache
def api_document() -> dict[str, Any]:
    """Return the API's OpenAPI document."""
    document = get_openapi(
        title="costopt daemon",
        version=__version__,
        description=API_DESCRIPTION,
        routes=[*api_operations(), *_document_routes()],
    )
    components = document["components"]
    components["schemas"][ProblemDetails.__name__] = ProblemDetails.model_json_schema(
        mode="serialization"
    )
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


@cache
def _document_routes() -> tuple[APIRoute, ...]:
    refusals: dict[int | str, Any] = {s: problem_response(s) for s in (401, 403, 429, 500, 503)}
    return (
        APIRoute("/openapi.json", _openapi, operation_id="openapi", response_model=dict[str, Any]),
        APIRoute(
            "/metrics",
            _metrics,
            operation_id="metrics",
            response_class=PlainTextResponse,
            responses=refusals,
            openapi_extra=rights(Scope.READ),
        ),
    )


def _openapi() -> Response:
    """This document."""
    return Response(_document_text(), media_type="application/json")


@cache
def _document_text() -> bytes:
    return json.dumps(api_document()).encode()


async def _metrics(request: Request) -> Response:
    """What is measured, for Prometheus."""
    await authenticate(request, Scope.READ)
    text = await to_thread.run_sync(request.app.state.metrics.text)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


async def _http_error(request: Request, error: Exception) -> Response:
    response = problem_of(error).response()
    if response.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
    return response


def _allowed_methods(request: Request) -> set[str]:
    """Each method of a path is a route of its own, and the first alone raised the error."""
    routes = [r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods}
    return methods | {"HEAD"} if "GET" in methods else methods


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises it again, and uvicorn logs it with its traceback.
    log.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
    return problem_of(error).response()


class _Headers:
    """Answers HEAD as GET, whose body uvicorn leaves out, and adds to every answer that does not
    say otherwise that no cache may store it and no browser may guess its type."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, sender)
