"""The routes of the daemon's pages, and the login of browsers.

A browser submits its token once and keeps a session in a cookie. The session allows reading only;
scripts cannot read the cookie, and other sites cannot send it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs, quote

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from costopt.daemon.http.auth import (
    SESSION_COOKIE,
    WRONG_TOKEN_DELAY_S,
    Principal,
    authenticate,
)
from costopt.daemon.http.problems import HttpProblemError, read_body
from costopt.daemon.pages.decisions import decision_page, decisions_page, proposals_page
from costopt.daemon.pages.fleet import fleet_page, market_page
from costopt.daemon.pages.guards import guards_page
from costopt.daemon.pages.jobs import job_page, jobs_page
from costopt.daemon.pages.layout import (
    ICON_PATH,
    MAX_FILTER_LENGTH,
    OFF,
    REFRESH,
    STYLE_PATH,
    ChartCache,
    PageRequest,
    build_layout,
    icon,
    render,
    render_login,
    render_notice,
    style,
)
from costopt.daemon.pages.ledger import ledger_page
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.domain.control import Scope, TokenStore
from costopt.domain.errors import CostoptError, SpecError
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
    """Return every page under /, for ``build_app(context, pages)``; reading them takes a token, and
    a token bound to a tenant shows only that tenant's data."""
    return _Pages(service).routes()


class _Pages:
    """Renders pages in threads, a few at a time, so that the API stays responsive."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._charts = ChartCache(service)
        self._limiter = CapacityLimiter(MAX_CONCURRENT)

    def routes(self) -> list[BaseRoute]:
        """Return one route per path."""
        pages: dict[str, Making] = {
            "/": partial(fleet_page, charts=self._charts),
            "/jobs": partial(jobs_page, charts=self._charts),
            "/jobs/{name}": self._job,
            "/market": market_page,
            "/decisions": decisions_page,
            "/decisions/{name}": lambda reader, asked: decision_page(reader, asked.name),
            "/ledger": partial(ledger_page, charts=self._charts),
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
        return job_page(reader, asked.name, self._charts.of(asked.name))

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
        name = who.name if who.tenant is None else f"{who.name} of tenant {who.tenant}"
        refreshes, reader = _refreshes(request), TenantReader(self._service, who.tenant)
        try:
            page = make(reader, asked)
            frame = build_layout(
                reader, _path(request), words, name,
                signed_in=SESSION_COOKIE in request.cookies, refreshes=refreshes,
            )  # fmt: skip
            answer = HTMLResponse(render(page, frame))
        except SpecError as error:
            return _notice(404, error.message, error.hint)
        except CostoptError as error:
            log.error("%s", error.message, exc_info=error)
            return _notice(503, error.message, error.hint)
        if REFRESH in request.query_params:
            answer.set_cookie(
                REFRESH_COOKIE, "on" if refreshes else OFF, max_age=YEAR_S, httponly=True,
                samesite="strict", secure=_over_tls(request),
            )  # fmt: skip
        return answer


def _path(request: Request) -> str:
    """Return the request's path, percent-encoded."""
    return quote(request.scope["path"])


def _refreshes(request: Request) -> bool:
    """Return whether the page refreshes: as the query says, otherwise as it last said."""
    said = request.query_params.get(REFRESH) or request.cookies.get(REFRESH_COOKIE)
    return said != OFF


def _notice(status: int, message: str, hint: str | None) -> Response:
    titles = {403: "Not allowed", 404: "Not found", 503: "Not available"}
    title = titles.get(status, "No page")
    return HTMLResponse(render_notice(title, message, hint or ""), status)


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with headers that forbid other sites to frame its responses."""

    async def answer(request: Request) -> Response:
        response = await endpoint(request)
        response.headers.update(HEADERS)
        return response

    return answer


async def _style(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    return Response(style(), headers=KEPT_HEADERS, media_type="text/css")


async def _icon(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    return Response(icon(), headers=KEPT_HEADERS, media_type="image/svg+xml")


LOGIN = "/login"
MAX_FORM_BYTES = 8 * 1024
FORM_TIMEOUT_S = 10.0
OWN_PATH = re.compile(r"/(?:[A-Za-z0-9._~-][A-Za-z0-9._~/%-]*)?")


def login_redirect(path: str) -> Response:
    """Redirect a browser without a session to the login page."""
    return RedirectResponse(f"{LOGIN}?then={quote(path)}", 303)


async def show_login(request: Request) -> Response:
    """Show the login form."""
    return HTMLResponse(render_login(safe_redirect_path(request.query_params.get("then", "/"))))


async def log_in(request: Request) -> Response:
    """Check the submitted token; start a session if it allows reading."""
    form = None if _from_elsewhere(request) else await _form(request)
    if form is None:
        return HTMLResponse(render_login("/", "This is not the form that was asked for."), 400)
    then = safe_redirect_path(form.get("then", "/"))
    plain = form.get("token", "").strip()
    tokens: TokenStore = request.app.state.context.tokens
    token = await asyncio.to_thread(tokens.token_of, plain) if plain else None
    if token is None or not token.allows(Scope.READ):
        await asyncio.sleep(WRONG_TOKEN_DELAY_S)
        return HTMLResponse(render_login(then, "The daemon knows no such token."), 401)
    answer = RedirectResponse(then, 303)
    badge = tokens.session_of(plain)
    answer.set_cookie(
        SESSION_COOKIE, badge, httponly=True, samesite="strict", secure=_over_tls(request)
    )
    return answer


async def log_out(request: Request) -> Response:
    """End the session, unless the request comes from another site."""
    answer = RedirectResponse(LOGIN, 303)
    if _from_elsewhere(request):
        return answer
    answer.delete_cookie(
        SESSION_COOKIE, httponly=True, samesite="strict", secure=_over_tls(request)
    )
    return answer


def safe_redirect_path(path: str) -> str:
    """Return the path if it is one of the daemon's, otherwise that of the first page: no redirect
    leads to another site."""
    return path if OWN_PATH.fullmatch(path) else "/"


def _from_elsewhere(request: Request) -> bool:
    """Return whether a page of another site sent the form, as browsers declare (W3C, Fetch
    Metadata; RFC 6454, Origin). A proxy in front that changes Host must send X-Forwarded-Host."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    if origin is None:
        return False
    hosts = (request.headers.get(name, "") for name in ("host", "x-forwarded-host"))
    known = {host.partition(",")[0].strip().lower() for host in hosts} - {""}
    address = origin.strip().lower().partition("://")[2]
    default_port = ":443" if origin.lower().startswith("https:") else ":80"
    return address.removesuffix(default_port) not in {h.removesuffix(default_port) for h in known}


def _over_tls(request: Request) -> bool:
    """Return whether a proxy in front reports TLS; a false report can only make the cookie
    stricter."""
    schemes = (
        request.url.scheme,
        request.headers.get("x-forwarded-proto", "").partition(",")[0],
        request.headers.get("origin", "").partition(":")[0],
        *re.findall(r'proto="?(\w+)', request.headers.get("forwarded", "").partition(",")[0]),
    )
    return "https" in {scheme.strip().lower() for scheme in schemes}


async def _form(request: Request) -> dict[str, str] | None:
    """Return the form's fields; None if they are too large, too slow, cut off or not a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    try:
        data = await read_body(request, MAX_FORM_BYTES, FORM_TIMEOUT_S)
        fields = parse_qs(data.decode("ascii"), max_num_fields=8)
    except (HttpProblemError, ValueError):
        return None
    return {name: values[0] for name, values in fields.items()}
