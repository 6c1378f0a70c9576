"""Operations on the daemon itself: health, fleet, proposals, halt, mode and tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import Request, Response

from costopt.daemon.http.problems import HttpProblemError
from costopt.daemon.http.requests import (
    After,
    Cursor,
    HaltRequest,
    Limit,
    ModeRequest,
    ProposalId,
    StateFilter,
    TokenName,
    TokenRequest,
)
from costopt.daemon.http.routes import ApiCall, Call, RouteList
from costopt.daemon.http.schemas import (
    AlertList,
    AuditLog,
    HaltResponse,
    LivenessResponse,
    ModeResponse,
    ProposalList,
    ReadinessResponse,
    TokenCreated,
    TokenList,
    TokenRevoked,
    model_of,
)
from costopt.daemon.lists import page_of
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import FleetView, Health, MarketView
from costopt.domain.account import Account
from costopt.domain.control import Proposal, Scope
from costopt.domain.errors import SpecError

CONTROL_OPERATIONS = RouteList()
operation = CONTROL_OPERATIONS.add
tenant_operation = partial(operation, by_tenants=True)


def _failing(model: type[LivenessResponse | ReadinessResponse]) -> dict[int | str, dict[str, Any]]:
    return {503: {"model": model, "description": "It is not."}}


# Not in a thread: a probe gets its answer also while every thread waits for a database.
@operation("GET /healthz", None, LivenessResponse, responses=_failing(LivenessResponse))
async def alive(request: Request, response: Response) -> Health:
    """Whether the daemon's loop runs."""
    health = TenantReader(request.app.state.context.service).health()
    response.status_code = 200 if health.alive else 503
    return health


@operation("GET /readyz", None, ReadinessResponse, responses=_failing(ReadinessResponse))
async def ready(request: Request, response: Response) -> Health:
    """Whether the daemon can do its work."""
    health = TenantReader(request.app.state.context.service).health()
    response.status_code = 200 if health.ready else 503
    return health


@tenant_operation("GET /v1/health", Scope.READ, model_of(Health))
def health(call: Call) -> Health:
    """Show the daemon's health, with its problems."""
    return call.reader.health()


@tenant_operation("GET /v1/fleet", Scope.READ, model_of(FleetView))
def fleet(call: Call) -> FleetView:
    """List all living nodes."""
    return call.reader.fleet()


@tenant_operation("GET /v1/market", Scope.READ, model_of(MarketView))
def market(call: Call) -> MarketView:
    """List what the providers offer."""
    return call.reader.market()


@tenant_operation("GET /v1/alerts", Scope.READ, AlertList)
def alerts(call: Call, after: After = 0) -> dict[str, Any]:
    """List what an operator should see."""
    return {"alerts": call.reader.alerts(after)}


@operation("GET /v1/changes", Scope.READ, AuditLog)
def changes(call: Call, after: After = 0) -> dict[str, Any]:
    """List operator actions."""
    entries = call.service.registry.changes(after)
    return {"changes": [{"seq": seq, "change": change} for seq, change in entries]}


@tenant_operation("GET /v1/proposals", Scope.READ, ProposalList)
def proposals(
    call: Call, state: StateFilter = None, cursor: Cursor = None, limit: Limit = 200
) -> dict[str, Any]:
    """List the actions that the daemon asked for."""
    every = call.reader.proposals()
    found = [each for each in every if state in (None, each.state)]
    page = page_of(found, lambda each: each.id, cursor, limit, every)
    return {"proposals": page.rows, "next": page.next}


@operation("POST /v1/proposals/{proposal}/approve", Scope.ADMIN, model_of(Proposal), refusal=409)
def approve(proposal: ProposalId, call: Call) -> Proposal:
    """Let the next tick do this, if it is still needed."""
    _check_proposal(proposal, call)
    return call.service.approve(proposal, call.caller.name)


@operation("POST /v1/proposals/{proposal}/reject", Scope.ADMIN, model_of(Proposal), refusal=409)
def reject(proposal: ProposalId, call: Call) -> Proposal:
    """Do not do this."""
    _check_proposal(proposal, call)
    return call.service.reject(proposal, call.caller.name)


@tenant_operation("GET /v1/halt", Scope.READ, HaltResponse)
def halted(call: Call) -> dict[str, Any]:
    """Show whether all launches are stopped."""
    return {"halt": call.service.registry.halted()}


@operation("PUT /v1/halt", Scope.ADMIN, HaltResponse)
def halt(body: HaltRequest, call: Call) -> dict[str, Any]:
    """Stop all launches at once."""
    return {"halt": call.service.halt(body.reason, call.caller.name)}


@operation("DELETE /v1/halt", Scope.ADMIN, HaltResponse)
def unhalt(call: Call) -> dict[str, Any]:
    """Allow launches again."""
    call.service.unhalt(call.caller.name)
    return {"halt": None}


@tenant_operation("GET /v1/mode", Scope.READ, ModeResponse)
def mode(call: Call) -> dict[str, Any]:
    """Show the daemon's mode."""
    return {"mode": call.service.mode()}


@operation("PUT /v1/mode", Scope.ADMIN, ModeResponse)
def set_mode(body: ModeRequest, call: Call) -> dict[str, Any]:
    """Set the daemon's mode."""
    call.service.set_mode(body.mode, call.caller.name)
    return {"mode": body.mode}


@operation("GET /v1/tokens", Scope.ADMIN, TokenList)
def tokens(call: Call) -> dict[str, Any]:
    """List tokens."""
    return {"tokens": call.context.tokens.tokens()}


@operation("POST /v1/tokens", Scope.ADMIN, TokenCreated, status_code=201, refusal=409)
def add_token(body: TokenRequest, call: Call) -> dict[str, Any]:
    """Create a token. It is shown only once."""
    scopes = tuple(sorted(set(body.scopes)))
    _check_tenant(body.tenant, call.service.account)
    now = call.context.clock.now()
    plain = call.context.tokens.add(body.name, scopes, call.caller.name, now, body.tenant)
    return {"name": body.name, "scopes": scopes, "token": plain, "tenant": body.tenant}


@operation("DELETE /v1/tokens/{token}", Scope.ADMIN, TokenRevoked, refusal=409)
def revoke_token(token: TokenName, call: Call) -> dict[str, Any]:
    """Revoke a token."""
    known = call.context.tokens
    if not any(each.name == token for each in known.tokens()):
        raise HttpProblemError(
            404, f"there is no token {token!r}", hint="see `costopt daemon token list`"
        )
    known.revoke(token, call.caller.name, call.context.clock.now())
    return {"name": token}


def _check_proposal(proposal_id: str, call: ApiCall) -> None:
    if not any(each.id == proposal_id for each in call.reader.proposals()):
        raise HttpProblemError(
            404, f"there is no proposal {proposal_id!r}", hint="see `costopt daemon approve`"
        )


def _check_tenant(tenant: str | None, account: Account) -> None:
    """Raise SpecError for a tenant that the account does not name, if it names any."""
    if tenant is not None and account.tenants and tenant not in account.tenants:
        raise SpecError(
            f"{tenant!r} is not a tenant of the account",
            hint=f"use one of {', '.join(sorted(account.tenants))}, or add it to the account file",
            code="unknown_tenant",
        )
