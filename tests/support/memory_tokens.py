"""Tokens in a dictionary."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import datetime

from costopt.domain.control import Scope, Token, validate_scopes
from costopt.domain.errors import SpecError


class MemoryTokens:
    """Implements the Tokens port, but for constant time and for digests."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}

    def add(
        self,
        name: str,
        scopes: Collection[Scope],
        who: str,
        at: datetime,
        tenant: str | None = None,
    ) -> str:
        validate_scopes(name, scopes, tenant)
        if any(each.name == name for each in self._tokens.values()):
            raise SpecError(f"a token named {name!r} exists already", code="duplicate")
        plain = f"costopt_{secrets.token_hex(8)}_{secrets.token_hex(32)}"
        self._tokens[plain] = Token(name, frozenset(scopes), at, who, tenant)
        return plain

    def token_of(self, plain: str) -> Token | None:
        return self._tokens.get(plain)

    def session_of(self, plain: str) -> str:
        return plain[::-1]

    def token_of_session(self, badge: str) -> Token | None:
        return self.token_of(badge[::-1])

    def tokens(self) -> tuple[Token, ...]:
        return tuple(sorted(self._tokens.values(), key=lambda each: each.name))

    def revoke(self, name: str, who: str, at: datetime) -> None:
        kept = {plain: each for plain, each in self._tokens.items() if each.name != name}
        if len(kept) == len(self._tokens):
            raise SpecError(f"there is no token {name!r}", code="unknown_token")
        self._tokens = kept
