"""How far the daemon may go by itself, and what people told it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Mode(StrEnum):
    """``observe`` plans and records and never acts, ``recommend`` asks first, ``enforce`` acts."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing is launched while this stands; what runs goes on, saves and may be released."""

    reason: str
    who: str
    at: datetime

    @property
    def message(self) -> str:
        """Who stopped launches, and why."""
        return f"{self.who} stopped all launches: {self.reason}"


class ActionKind(StrEnum):
    """What is done to nodes."""

    LAUNCH = "launch"
    DRAIN = "drain"
    TERMINATE = "terminate"


class ProposalState(StrEnum):
    """An open proposal waits for an answer; a withdrawn one is no longer what is wanted.

    An approved one is executed once it is done, or refused: by a guard, or by the provider.
    """

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXECUTED = "executed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One action that the daemon would take. A launch has ``nodes`` and a price, others a node.

    ``usd_per_hour`` is of one node, None where no price belongs to the action or none is known.
    ``outcome`` says of a refused one who refused it and why.
    """

    id: str
    job: str
    kind: ActionKind
    pool: str
    nodes: int
    reason: str
    proposed_at: datetime
    node_id: str | None = None
    usd_per_hour: float | None = None
    state: ProposalState = ProposalState.OPEN
    answered_by: str | None = None
    answered_at: datetime | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that a person told the daemon: ``what`` is "mode", "halt", "unhalt", "approve" …

    ``subject`` is a job's name, a proposal's id, or "" where the whole daemon is meant.
    """

    at: datetime
    who: str
    what: str
    subject: str
    detail: str
