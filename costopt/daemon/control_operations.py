"""What can be asked and told of the daemon itself."""

from __future__ import annotations

from costopt.daemon.answers import (
    AlertList,
    AuditLog,
    AuditLogEntry,
    HaltRequest,
    HaltResponse,
    LivenessResponse,
    ModeRequest,
    ModeResponse,
    ProposalList,
    ReadinessResponse,
)
from costopt.daemon.job_operations import AFTER
from costopt.daemon.operation import ID, ApiCall, Operation, in_path, in_query
from costopt.daemon.reach import ApiContext
from costopt.daemon.views import FleetView, Health, MarketView
from costopt.domain.control import Proposal, ProposalState
from costopt.domain.errors import SpecError
from costopt.domain.token import Scope

PROPOSAL = in_path("proposal", ID, "the proposal's id")
STATE = in_query("state", ProposalState, "only those in this state; default: all")


def control_operations(reach: ApiContext) -> tuple[Operation, ...]:
    """In the order of the document."""
    return (*_health(reach), *_looking(reach), *_proposals(reach), *_steering(reach))


def _health(reach: ApiContext) -> tuple[Operation, ...]:
    service = reach.service
    return (
        Operation(
            "alive", "GET", "/healthz", None, "Whether the daemon's loop goes on.",
            LivenessResponse,
            lambda _: LivenessResponse(service.health().alive),
            failing=503,
        ),
        Operation(
            "ready", "GET", "/readyz", None, "Whether the daemon can do its work.",
            ReadinessResponse,
            lambda _: ReadinessResponse(service.health().ready),
            failing=503,
        ),
        Operation(
            "health", "GET", "/v1/health", Scope.READ, "How the daemon is, with its problems.",
            Health, lambda call: reach.reader(call.caller).health(), by_tenants=True,
        ),
    )  # fmt: skip


def _looking(reach: ApiContext) -> tuple[Operation, ...]:
    service, read = reach.service, Scope.READ

    def alerts(call: ApiCall) -> AlertList:
        return AlertList(reach.reader(call.caller).alerts(call.values["after"]))

    def changes(call: ApiCall) -> AuditLog:
        told = service.changes(call.values["after"])
        return AuditLog(tuple(AuditLogEntry(seq, change) for seq, change in told))

    return (
        Operation(
            "fleet", "GET", "/v1/fleet", read, "List all living nodes.", FleetView,
            lambda call: reach.reader(call.caller).fleet(), by_tenants=True,
        ),
        Operation(
            "market", "GET", "/v1/market", read, "List what the providers sell.", MarketView,
            lambda _: service.market(), by_tenants=True,
        ),
        Operation(
            "alerts", "GET", "/v1/alerts", read, "List what a person should hear of.", AlertList,
            alerts, (AFTER,), by_tenants=True,
        ),
        Operation(
            "changes", "GET", "/v1/changes", read, "List what people told the daemon.", AuditLog,
            changes, (AFTER,),
        ),
    )  # fmt: skip


def _proposals(reach: ApiContext) -> tuple[Operation, ...]:
    service = reach.service

    def exists(call: ApiCall) -> object:
        asked = call.values["proposal"]
        if not any(each.id == asked for each in service.proposals()):
            raise SpecError(
                f"there is no proposal {asked!r}",
                hint="see `costopt approve`",
                code="unknown_proposal",
            )
        return asked

    def proposals(call: ApiCall) -> ProposalList:
        state = call.values["state"]
        return ProposalList(reach.reader(call.caller).proposals(() if state is None else (state,)))

    def approve(call: ApiCall) -> Proposal:
        return service.approve(call.values["proposal"], call.caller.name)

    def reject(call: ApiCall) -> Proposal:
        return service.reject(call.values["proposal"], call.caller.name)

    return (
        Operation(
            "proposals", "GET", "/v1/proposals", Scope.READ, "List what the daemon asked for.",
            ProposalList, proposals, (STATE,), by_tenants=True,
        ),
        Operation(
            "approve", "POST", "/v1/proposals/{proposal}/approve", Scope.ADMIN,
            "Let the next tick do this, if it is still wanted.", Proposal, approve, (PROPOSAL,),
            exists=exists, refusal=409,
        ),
        Operation(
            "reject", "POST", "/v1/proposals/{proposal}/reject", Scope.ADMIN, "Do not do this.",
            Proposal, reject, (PROPOSAL,), exists=exists, refusal=409,
        ),
    )  # fmt: skip


def _steering(reach: ApiContext) -> tuple[Operation, ...]:
    service, admin = reach.service, Scope.ADMIN

    def halt(call: ApiCall) -> HaltResponse:
        return HaltResponse(service.halt(call.body.reason, call.caller.name))

    def unhalt(call: ApiCall) -> HaltResponse:
        service.unhalt(call.caller.name)
        return HaltResponse(None)

    def set_mode(call: ApiCall) -> ModeResponse:
        service.set_mode(call.body.mode, call.caller.name)
        return ModeResponse(call.body.mode)

    return (
        Operation(
            "halted", "GET", "/v1/halt", Scope.READ, "Whether all launches are stopped.",
            HaltResponse, lambda _: HaltResponse(service.halted()), by_tenants=True,
        ),
        Operation(
            "halt", "PUT", "/v1/halt", admin, "Stop all launches at once.", HaltResponse, halt,
            body=HaltRequest,
        ),
        Operation(
            "unhalt", "DELETE", "/v1/halt", admin, "Let launches happen again.",
            HaltResponse, unhalt,
        ),
        Operation(
            "mode", "GET", "/v1/mode", Scope.READ, "How far the daemon goes by itself.",
            ModeResponse, lambda _: ModeResponse(service.mode()), by_tenants=True,
        ),
        Operation(
            "setMode", "PUT", "/v1/mode", admin, "Set how far the daemon goes by itself.",
            ModeResponse, set_mode, body=ModeRequest,
        ),
    )  # fmt: skip
