"""The daemon's pages, as routes of its application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from costopt.daemon.http.auth import SESSION_COOKIE, Principal, authenticate
from costopt.daemon.http.problems import HttpProblemError
from costopt.daemon.pages.asked import MAX_FILTER_LENGTH, PageRequest
from costopt.daemon.pages.decisions import decision_page, decisions_page
from costopt.daemon.pages.entry import LOGIN, log_in, log_out, login_redirect, show_login
from costopt.daemon.pages.fleet import fleet_page
from costopt.daemon.pages.frame import OFF, REFRESH, build_layout
from costopt.daemon.pages.guards import guards_page
from costopt.daemon.pages.job import job_page
from costopt.daemon.pages.jobs import jobs_page
from costopt.daemon.pages.ledger import ledger_page
from costopt.daemon.pages.market import market_page
from costopt.daemon.pages.proposals import proposals_page
from costopt.daemon.pages.render import (
    ICON_PATH,
    STYLE_PATH,
    icon,
    render,
    render_notice,
    style,
)
from costopt.daemon.pages.story import ChartCache
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.domain.errors import CostoptError, SpecError
from costopt.domain.token import Scope
from costopt.render.page import Page

MAX_CONCURRENT = 4
REFRESH_COOKIE = "costopt_refresh"
YEAR_S = 365 * 86_400
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
KEPT_HEADERS = {**HEADERS, "Cache-Control": "max-age=3600"}
Making = Callable[[TenantReader, PageRequest], Page]
Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("costopt.daemon.pages")


def page_routes(service: DaemonService) -> list[BaseRoute]:
    """Every page under /, for ``build_app(context, pages)``; reading them takes a token, and a
    tenant's shows what is the tenant's."""
    return _Pages(service).routes()


class _Pages:
    """Makes pages in threads, a few at a time, so that the API goes on answering."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._stories = ChartCache(service)
        self._limiter = CapacityLimiter(MAX_CONCURRENT)

    def routes(self) -> list[BaseRoute]:
        """One per path."""
        pages: dict[str, Making] = {
            "/": fleet_page,
            "/jobs": jobs_page,
            "/jobs/{name}": self._job,
            "/market": market_page,
            "/decisions": decisions_page,
            "/decisions/{name}": lambda reader, asked: decision_page(reader, asked.name),
            "/ledger": ledger_page,
            "/guards": guards_page,
            "/proposals": proposals_page,
        }
        return [
            *(Route(path, self._endpoint(make), methods=["GET"]) for path, make in pages.items()),
            Route(STYLE_PATH, _style, methods=["GET"]),
            Route(ICON_PATH, _icon, methods=["GET"]),
            Route(LOGIN, _guarded(show_login), methods=["GET"]),
            Route(LOGIN, _guarded(log_in), methods=["POST"]),
            Route("/logout", _guarded(log_out), methods=["POST"]),
        ]

    def _job(self, reader: TenantReader, asked: PageRequest) -> Page:
        reader.job(asked.name)
        return job_page(reader, asked.name, self._stories.of(asked.name))

    def _endpoint(self, make: Making) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                who = await authenticate(request, Scope.READ, by_tenants=True)
            except HttpProblemError as error:
                if error.status_code == 401:
                    return login_redirect(_path(request))
                return _notice(error.status_code, error.detail, error.hint)
            return await to_thread.run_sync(
                self._answer, make, request, who, limiter=self._limiter
            )  # fmt: skip

        return _guarded(endpoint)

    def _answer(self, make: Making, request: Request, who: Principal) -> Response:
        words = request.query_params.get("q", "")[:MAX_FILTER_LENGTH]
        asked = PageRequest(request.path_params.get("name", ""), words)
        refreshes, reader = _refreshes(request), TenantReader(self._service, who.tenant)
        try:
            page = make(reader, asked)
            frame = build_layout(
                reader, _path(request), words, _named(who),
                signed_in=SESSION_COOKIE in request.cookies, refreshes=refreshes,
            )  # fmt: skip
            answer = HTMLResponse(render(page, frame))
        except SpecError as error:
            return _notice(404, error.message, error.hint)
        except CostoptError as error:
            log.error("%s", error.message, exc_info=error)
            return _notice(503, error.message, error.hint)
        if REFRESH in request.query_params:
            _keep_refresh(answer, refreshes)
        return answer


def _named(who: Principal) -> str:
    return who.name if who.tenant is None else f"{who.name} of tenant {who.tenant}"


def _path(request: Request) -> str:
    """As an address has it."""
    return quote(request.scope["path"])


def _refreshes(request: Request) -> bool:
    """As the address says, else as it said last."""
    said = request.query_params.get(REFRESH) or request.cookies.get(REFRESH_COOKIE)
    return said != OFF


def _keep_refresh(answer: Response, refreshes: bool) -> None:
    answer.set_cookie(
        REFRESH_COOKIE, "on" if refreshes else OFF, max_age=YEAR_S, httponly=True, samesite="strict"
    )


def _notice(status: int, message: str, hint: str | None) -> Response:
    titles = {403: "Not allowed", 404: "Not found", 503: "Not available"}
    title = titles.get(status, "No page")
    return HTMLResponse(render_notice(title, message, hint or ""), status)


def _guarded(endpoint: Endpoint) -> Endpoint:
    """The endpoint, whose answers no other site frames."""

    async def answer(request: Request) -> Response:
        response = await endpoint(request)
        response.headers.update(HEADERS)
        return response

    return answer


async def _style(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    return Response(style(), headers=KEPT_HEADERS, media_type="text/css")


async def _icon(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    return Response(icon(), headers=KEPT_HEADERS, media_type="image/svg+xml")
