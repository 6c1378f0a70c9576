"""How a browser gets in: it hands its token over once and keeps a badge of it in a cookie.

The badge counts for looking only, and no script can read it. No other site can send it.
"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from costopt.daemon.http.auth import SESSION_COOKIE
from costopt.daemon.http.problems import HttpProblemError, read_body
from costopt.daemon.pages.render import render_login
from costopt.domain.token import Scope, TokenStore

LOGIN = "/login"
MAX_FORM_BYTES = 8 * 1024
FORM_TIMEOUT_S = 10.0
OWN_PATH = re.compile(r"/(?:[A-Za-z0-9._~-][A-Za-z0-9._~/%-]*)?")


def login_redirect(path: str) -> Response:
    """Sends a browser that is not known to where it hands its token over."""
    return RedirectResponse(f"{LOGIN}?then={quote(path)}", 303)


async def show_login(request: Request) -> Response:
    """The form."""
    return HTMLResponse(render_login(safe_redirect_path(request.query_params.get("then", "/"))))


async def log_in(request: Request) -> Response:
    """Take the token that the form brings; give a badge for it where it may look."""
    form = None if _from_elsewhere(request) else await _form(request)
    if form is None:
        return HTMLResponse(render_login("/", "This is not the form that was asked for."), 400)
    then = safe_redirect_path(form.get("then", "/"))
    plain = form.get("token", "").strip()
    tokens: TokenStore = request.app.state.context.tokens
    token = await asyncio.to_thread(tokens.token_of, plain) if plain else None
    if token is None or not token.allows(Scope.READ):
        return HTMLResponse(render_login(then, "The daemon knows no such token."), 401)
    answer = RedirectResponse(then, 303)
    badge = tokens.session_of(plain)
    answer.set_cookie(
        SESSION_COOKIE, badge, httponly=True, samesite="strict", secure=_over_tls(request)
    )
    return answer


async def log_out(request: Request) -> Response:
    """Forget the badge, unless another site says so."""
    answer = RedirectResponse(LOGIN, 303)
    if _from_elsewhere(request):
        return answer
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer


def safe_redirect_path(path: str) -> str:
    """The path where it is one of ours, else that of the first page: nobody is sent elsewhere."""
    return path if OWN_PATH.fullmatch(path) else "/"


def _from_elsewhere(request: Request) -> bool:
    """Whether a page of another site sent the form, as browsers tell (W3C, Fetch Metadata)."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _over_tls(request: Request) -> bool:
    """As a proxy in front tells; who lies about it can only make the cookie stricter."""
    said = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, said.strip().lower())


async def _form(request: Request) -> dict[str, str] | None:
    """The fields, None where they are too large, too slow, cut off or no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    try:
        data = await read_body(request, MAX_FORM_BYTES, FORM_TIMEOUT_S)
        fields = parse_qs(data.decode("ascii"), max_num_fields=8)
    except (HttpProblemError, ValueError):
        return None
    return {name: values[0] for name, values in fields.items()}
