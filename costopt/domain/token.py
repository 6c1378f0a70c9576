"""Who may tell a daemon what, over the network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from costopt.domain.errors import SpecError


class Scope(StrEnum):
    """``read`` looks, ``submit`` hands in jobs and steers them, ``admin`` does everything else."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer's rights; the secret itself is kept nowhere. With a ``tenant`` its jobs alone are
    seen and changed."""

    name: str
    scopes: frozenset[Scope]
    added_at: datetime
    added_by: str
    tenant: str | None = None

    def allows(self, scope: Scope) -> bool:
        """Whether it may do what ``scope`` names; each scope holds those before it."""
        order = list(Scope)
        return any(order.index(mine) >= order.index(scope) for mine in self.scopes)


def validate_scopes(name: str, scopes: Collection[Scope], tenant: str | None) -> None:
    """Raises SpecError where a token would allow nothing, or a tenant's what is not of jobs."""
    if not scopes:
        raise SpecError(
            f"token {name!r} allows nothing", hint="name read, submit or admin", code="no_scopes"
        )
    if tenant is not None and Scope.ADMIN in scopes:
        raise SpecError(
            f"token {name!r} cannot be an admin's and bound to tenant {tenant!r}",
            hint="give it the scope read or submit",
            code="admin_with_tenant",
        )


class TokenStore(Protocol):
    """The tokens that a daemon accepts. Every method may raise LedgerError."""

    def add(
        self,
        name: str,
        scopes: Collection[Scope],
        who: str,
        at: datetime,
        tenant: str | None = None,
    ) -> str:
        """A new token's plain text, which cannot be had again.

        Raises SpecError where the name is taken, or as ``validate_scopes``.
        """
        ...

    def token_of(self, plain: str) -> Token | None:
        """The token with this plain text; takes as long for a wrong one as for a right one."""
        ...

    def session_of(self, plain: str) -> str:
        """What a browser keeps of a token's plain text, which cannot be had from it."""
        ...

    def token_of_session(self, badge: str) -> Token | None:
        """The token that a browser's badge is of; as ``token_of``."""
        ...

    def tokens(self) -> tuple[Token, ...]:
        """All of them, by name."""
        ...

    def revoke(self, name: str, who: str, at: datetime) -> None:
        """From now on it is no token. Raises SpecError where there is none of that name."""
        ...
