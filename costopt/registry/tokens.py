"""Bearer tokens, of which only digests are stored.

A token is ``costopt_LOOKUP_SECRET``: LOOKUP finds its row, SECRET (256 random bits, so that a fast
digest cannot be searched) is compared as SHA-256, in constant time. A browser's session has the
same form, with an HMAC under that digest in place of SECRET.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Row, select

from costopt.database.connection import Database
from costopt.domain.control import Scope, Token, validate_scopes
from costopt.domain.errors import SpecError
from costopt.registry.schema import TOKENS, append_audit_entry

PREFIX = "costopt"
LOOKUP_BYTES = 8
SECRET_BYTES = 32
_SHAPE = re.compile(f"{PREFIX}_([0-9a-f]{{{2 * LOOKUP_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")


class SqlTokenStore:
    """Implements the TokenStore port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        name: str,
        scopes: Collection[Scope],
        who: str,
        at: datetime,
        tenant: str | None = None,
    ) -> str:
        """Create a token and return its plain text. Raises SpecError where the name is taken, or as
        ``validate_scopes``."""
        validate_scopes(name, scopes, tenant)
        lookup = secrets.token_hex(LOOKUP_BYTES)
        secret = secrets.token_hex(SECRET_BYTES)
        scope_names = " ".join(sorted(Scope(scope).value for scope in scopes))
        with self._database.write_transaction() as connection:
            if connection.execute(select(TOKENS).where(TOKENS.c.name == name)).first() is not None:
                raise SpecError(
                    f"a token named {name!r} exists already",
                    hint="revoke it, or choose another",
                    code="duplicate",
                )
            connection.execute(
                TOKENS.insert().values(
                    name=name,
                    scopes=scope_names,
                    lookup=lookup,
                    digest=_digest(secret),
                    added_at=at,
                    added_by=who,
                    tenant=tenant,
                )
            )
            append_audit_entry(connection, at, who, "token", name, _rights(scope_names, tenant))
        return f"{PREFIX}_{lookup}_{secret}"

    def token_of(self, plain: str) -> Token | None:
        """Return the token with this plain text, or None."""
        lookup, secret = _parts(plain)
        row = self._row(lookup)
        same = hmac.compare_digest(_known(row), _digest(secret))
        return _token(row) if same and row is not None else None

    def session_of(self, plain: str) -> str:
        """Return a browser's session for a token's plain text."""
        lookup, secret = _parts(plain)
        return f"{PREFIX}_{lookup}_{_looks(_digest(secret))}"

    def token_of_session(self, badge: str) -> Token | None:
        """Return the token of a browser's session, or None."""
        lookup, looks = _parts(badge)
        row = self._row(lookup)
        same = hmac.compare_digest(_looks(_known(row)), looks)
        return _token(row) if same and row is not None else None

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, by name."""
        with self._database.read_transaction() as connection:
            rows = connection.execute(select(TOKENS).order_by(TOKENS.c.name)).all()
        return tuple(_token(row) for row in rows)

    def revoke(self, name: str, who: str, at: datetime) -> None:
        """Revoke a token. Raises SpecError where there is none of that name."""
        with self._database.write_transaction() as connection:
            if not connection.execute(TOKENS.delete().where(TOKENS.c.name == name)).rowcount:
                raise SpecError(
                    f"there is no token {name!r}",
                    hint="see `costopt daemon token list`",
                    code="unknown_token",
                )
            append_audit_entry(connection, at, who, "revoke", name)

    def _row(self, lookup: str) -> Row[Any] | None:
        with self._database.read_transaction() as connection:
            return connection.execute(select(TOKENS).where(TOKENS.c.lookup == lookup)).first()


def _parts(text: str) -> tuple[str, str]:
    """Return lookup and secret, empty where the text has another form."""
    shape = _SHAPE.fullmatch(text)
    return ("", "") if shape is None else (shape[1], shape[2])


def _known(row: Row[Any] | None) -> str:
    return _digest("") if row is None else str(row.digest)


def _looks(digest: str) -> str:
    return hmac.new(digest.encode(), b"looks", sha256).hexdigest()


def _token(row: Row[Any]) -> Token:
    scopes = frozenset(Scope(word) for word in row.scopes.split())
    return Token(row.name, scopes, row.added_at, row.added_by, row.tenant)


def _rights(scopes: str, tenant: str | None) -> str:
    return scopes if tenant is None else f"{scopes} of tenant {tenant}"


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
