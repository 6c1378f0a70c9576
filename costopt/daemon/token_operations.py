"""What can be asked and told of tokens."""

from __future__ import annotations

from costopt.daemon.answers import NAME_PATTERN, TokenCreated, TokenList, TokenRequest, TokenRevoked
from costopt.daemon.operation import ApiCall, Operation, in_path
from costopt.daemon.reach import ApiContext
from costopt.domain.account import Account
from costopt.domain.errors import SpecError
from costopt.domain.token import Scope

NAME = in_path("token", NAME_PATTERN, "the token's name")


def token_operations(reach: ApiContext) -> tuple[Operation, ...]:
    """In the order of the document."""
    tokens = reach.tokens

    def exists(call: ApiCall) -> object:
        asked = call.values["token"]
        if not any(each.name == asked for each in tokens.tokens()):
            raise SpecError(
                f"there is no token {asked!r}",
                hint="see `costopt token list`",
                code="unknown_token",
            )
        return asked

    def add(call: ApiCall) -> TokenCreated:
        body: TokenRequest = call.body
        scopes = tuple(sorted(set(body.scopes)))
        _check_tenant(body.tenant, reach.service.account_limits())
        now = reach.clock.now()
        plain = tokens.add(body.name, scopes, call.caller.name, now, body.tenant)
        return TokenCreated(body.name, scopes, plain, body.tenant)

    def revoke(call: ApiCall) -> TokenRevoked:
        name = call.values["token"]
        tokens.revoke(name, call.caller.name, reach.clock.now())
        return TokenRevoked(name)

    admin = Scope.ADMIN
    return (
        Operation(
            "tokens", "GET", "/v1/tokens", admin, "List tokens.", TokenList,
            lambda _: TokenList(tokens.tokens()),
        ),
        Operation(
            "addToken", "POST", "/v1/tokens", admin, "Make a token; it is told this once.",
            TokenCreated, add, body=TokenRequest, status=201, refusal=409,
        ),
        Operation(
            "revokeToken", "DELETE", "/v1/tokens/{token}", admin, "Make a token worthless.",
            TokenRevoked, revoke, (NAME,), exists=exists, refusal=409,
        ),
    )  # fmt: skip


def _check_tenant(tenant: str | None, account: Account) -> None:
    """Raise SpecError for a tenant that the account does not name, where it names any."""
    if tenant is not None and account.tenants and tenant not in account.tenants:
        raise SpecError(
            f"{tenant!r} is not a tenant of the account",
            hint=f"use one of {', '.join(sorted(account.tenants))}, or add it to the account file",
            code="unknown_tenant",
        )
