"""Authentication and authorization: the local socket's owner, or the bearer of a token."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import sleep, to_thread
from starlette.requests import HTTPConnection

from costopt.daemon.http.problems import HttpProblemError
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.domain.control import Scope, Token, TokenStore
from costopt.domain.errors import LedgerError, StoreError
from costopt.domain.ports import Clock

LOCAL = "costopt.local"
"""The key of an ASGI scope that only our own listener on the local socket sets."""
SESSION_COOKIE = "costopt_session"
"""A browser's session, which may only read, whatever its token's scopes are."""
WRONG_TOKEN_DELAY_S = 0.5
"""Before the answer to a token that is not known, so that guesses are slow."""
SAFE_METHODS = frozenset({"GET", "HEAD"})

log = logging.getLogger("costopt.daemon.api")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. ``name`` goes into the audit log. One without a token came over
    the local socket, which only its owner can open, and may do everything."""

    name: str
    token: Token | None = None

    @property
    def local(self) -> bool:
        """Whether the caller came over the local socket."""
        return self.token is None

    @property
    def tenant(self) -> str | None:
        """The tenant whose jobs alone the caller sees and changes, None for all tenants."""
        return None if self.token is None else self.token.tenant

    def can_see(self, tenant: str) -> bool:
        """Whether the caller may see jobs of this tenant."""
        return self.tenant in (None, tenant)

    def allows(self, scope: Scope) -> bool:
        """Whether the caller has the rights of ``scope``."""
        return self.token is None or self.token.allows(scope)


@dataclass(frozen=True, slots=True)
class ApiContext:
    """What the API works on, in ``app.state.context``.

    ``folders`` are those of this machine that jobs from elsewhere may use; relative paths of such
    jobs count from the first. ``clock`` is the wall's.
    """

    service: DaemonService
    tokens: TokenStore
    clock: Clock
    folders: tuple[Path, ...]

    def reader(self, caller: Principal) -> TenantReader:
        """Return what the caller may see."""
        return TenantReader(self.service, caller.tenant)

    def folders_for(self, caller: Principal) -> tuple[Path, ...]:
        """Return those of ``folders`` that the caller's jobs may use: for a tenant's token a
        subfolder of each. Raise StoreError if one is missing and cannot be made."""
        if caller.tenant is None:
            return self.folders
        folders = tuple(folder / caller.tenant for folder in self.folders)
        for folder in folders:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make {folder}: {error.strerror}") from error
        return folders


async def authenticate(
    request: HTTPConnection, scope: Scope, *, by_tenants: bool = False
) -> Principal:
    """Return who sends a request, if it has the rights of ``scope``.

    Raise HttpProblemError: 401 without a known token, 403 without the scope, or for a token bound
    to a tenant unless ``by_tenants``; 429 for a tenant that sends too many requests; 503
    if the token store is unavailable, without the details, which an unauthenticated caller must not
    learn.
    """
    tokens: TokenStore = request.app.state.context.tokens
    try:
        caller = await to_thread.run_sync(
            _known_principal, request, tokens, limiter=request.app.state.auth_limiter
        )
    except LedgerError as error:
        log.error("%s", error.message, exc_info=error)
        raise HttpProblemError(503, "the daemon's database cannot be read now") from error
    if caller is None:
        if "authorization" in request.headers:
            await sleep(WRONG_TOKEN_DELAY_S)
        raise HttpProblemError(
            401,
            "this needs a token that the daemon knows",
            hint="send it as Authorization: Bearer …; costopt takes it from COSTOPT_TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="costopt"'},
        )
    if caller.tenant is not None:
        request.app.state.request_limits.charge(caller.tenant)
    if not caller.allows(scope):
        raise HttpProblemError(
            403,
            f"token {caller.name!r} may not do this: it needs the scope {scope.value}",
            hint="ask an admin for another token: costopt daemon token add",
        )
    if caller.tenant is not None and not by_tenants:
        raise HttpProblemError(
            403,
            f"token {caller.name!r} may not do this: it is bound to tenant {caller.tenant!r}",
            hint="ask about the tenant's own jobs: costopt status",
        )
    return caller


def _known_principal(request: HTTPConnection, tokens: TokenStore) -> Principal | None:
    scope: Mapping[str, Any] = request.scope
    if scope.get(LOCAL) is True:
        return Principal(_local_name())
    kind, _, plain = request.headers.get("authorization", "").partition(" ")
    token = None
    if kind.lower() == "bearer":
        token = tokens.token_of(plain.strip())
    elif SESSION_COOKIE in request.cookies and scope["method"] in SAFE_METHODS:
        token = tokens.token_of_session(request.cookies[SESSION_COOKIE])
    return None if token is None else Principal(token.name, token)


def _local_name() -> str:
    try:
        return f"local:{getpass.getuser()}"
    except (KeyError, OSError):
        return "local"
