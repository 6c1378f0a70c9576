"""Mode, Halt, Proposal, Submission, Token; the Registry port.

How far the daemon may go by itself, and what people told it.

What the daemon knows besides the ledger: jobs handed in, its mode, a halt, proposals.

A job as it was handed to the daemon, and what its owner wants of it now.

Who may tell a daemon what, over the network.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from costopt.domain.errors import SpecError


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


class Registry(Protocol):
    """Safe to share between threads; what is written is durable on return.

    Every method may raise LedgerError. What a person changes is kept as a Change as well.
    """

    def submit(self, submission: Submission) -> None:
        """Take a job in. Raises SpecError where the name is taken."""
        ...

    def submission(self, name: str) -> Submission | None:
        """One job, or None."""
        ...

    def submissions(
        self, desired_states: Collection[DesiredState] = (), tenant: str | None = None
    ) -> tuple[Submission, ...]:
        """Return those with one of these desired states, all if none is given, in the order of
        submission; those of one tenant if one is given."""
        ...

    def set_desired_state(
        self, name: str, desired_state: DesiredState, who: str, at: datetime
    ) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one that is to run again."""
        ...

    def set_priority(self, name: str, priority: int, who: str, at: datetime) -> Submission:
        """Raises SpecError for an unknown job, and for a cancelled one."""
        ...

    def halt(self, reason: str, who: str, at: datetime) -> Halt:
        """Stop all launches; of a halt that stands this is the reason from now on.

        The same person's same reason again is no change.
        """
        ...

    def unhalt(self, who: str, at: datetime) -> None:
        """Let launches happen again; without a halt nothing happens."""
        ...

    def halted(self) -> Halt | None:
        """The halt that stands."""
        ...

    def mode(self) -> Mode | None:
        """As set last, None where it never was."""
        ...

    def set_mode(self, mode: Mode, who: str, at: datetime) -> None:
        """From the next tick on."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Keep a proposal; one with the same id is replaced."""
        ...

    def proposals(self, states: Collection[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Those in one of these states, all where none is named, in order of proposal."""
        ...

    def answer(
        self, proposal_id: str, state: ProposalState, who: str, at: datetime, outcome: str = ""
    ) -> Proposal:
        """Raises SpecError where there is none of that id, or it is no longer open.

        An approved one may still become executed, refused or withdrawn.
        """
        ...

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """What people told the daemon, with its number, counted from 1."""
        ...


class DesiredState(StrEnum):
    """What is wanted of a job; a paused one keeps its checkpoint and no nodes, as a cancelled one.

    A job that is cancelled is never run again.
    """

    RUN = "run"
    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job and the policy that it follows, as YAML texts.

    ``submitted_at`` is the daemon's clock, from which the job's relative times count. Relative
    paths of the job count from ``workdir``. Of two jobs that both wait, the one with the higher
    ``priority`` is served first, and may take the room of one with a lower.
    """

    name: str
    tenant: str
    priority: int
    job_document: str
    policy_document: str
    workdir: str
    submitted_at: datetime
    submitted_by: str
    desired_state: DesiredState = DesiredState.RUN


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
