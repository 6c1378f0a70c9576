"""Who asks. Over the local socket its owner, over the network the bearer of a token."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costopt.domain.token import Scope, Token, TokenStore

LOCAL = "costopt.local"
"""The key of an ASGI scope that only our own listener on the local socket sets."""
SESSION_COOKIE = "costopt_badge"
"""A browser's badge counts for looking only, whoever has it; no token can be had from it."""
SAFE_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Principal:
    """``name`` goes into what is recorded. A caller without a token came over the local socket,
    which only its owner opens, and may do everything."""

    name: str
    token: Token | None = None

    @property
    def local(self) -> bool:
        """Whether the caller came over the local socket."""
        return self.token is None

    @property
    def tenant(self) -> str | None:
        """Whose jobs alone the caller sees and changes, None where all."""
        return None if self.token is None else self.token.tenant

    def can_see(self, tenant: str) -> bool:
        """Whether jobs of this tenant are the caller's to see."""
        return self.tenant in (None, tenant)

    def allows(self, scope: Scope) -> bool:
        """Whether the caller may do what ``scope`` names."""
        return self.token is None or self.token.allows(scope)


def authenticate_request(
    scope: Mapping[str, Any],
    headers: Mapping[str, str],
    cookies: Mapping[str, str],
    tokens: TokenStore,
) -> Principal | None:
    """Who sent a request, None where it is not known. May raise LedgerError.

    ``scope`` is the request's ASGI scope.
    """
    if scope.get(LOCAL) is True:
        return Principal(f"local:{getpass.getuser()}" if _named() else "local")
    plain, token = _bearer(headers.get("authorization", "")), None
    if plain is not None:
        token = tokens.token_of(plain)
    elif SESSION_COOKIE in cookies and scope.get("method") in SAFE_METHODS:
        token = tokens.token_of_session(cookies[SESSION_COOKIE])
    return None if token is None else Principal(token.name, token)


def _bearer(header: str) -> str | None:
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _named() -> bool:
    try:
        return bool(getpass.getuser())
    except (KeyError, OSError):
        return False
