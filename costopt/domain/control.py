"""Operator control of the daemon: modes, halts, proposals, submissions, tokens and their ports.

``Registry`` holds what the daemon knows besides the ledger: submitted jobs with their desired
states, its mode, a halt, proposals and the audit log. ``TokenStore`` holds who may use its API.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from costopt.domain.errors import SpecError


class Mode(StrEnum):
    """What the daemon does: ``observe`` plans and records and never acts, ``recommend`` asks first,
    ``enforce`` acts."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Halt:
    """No node is launched while this is in force; running ones continue, save and may end."""

    reason: str
    who: str
    at: datetime

    @property
    def message(self) -> str:
        """Return who stopped launches, and why."""
        return f"{self.who} stopped all launches: {self.reason}"


class ActionKind(StrEnum):
    """The kinds of actions on nodes."""

    LAUNCH = "launch"
    DRAIN = "drain"
    TERMINATE = "terminate"


class JobFilter(StrEnum):
    """Which jobs a list shows: RECENT are those that are open and the latest that are over."""

    RECENT = "recent"
    OPEN = "open"
    ENDED = "ended"
    ALL = "all"
    WAITING = "waiting"
    STARTING = "starting"
    TRAINING = "training"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class ProposalState(StrEnum):
    """An open proposal waits for an answer; a withdrawn one is no longer needed.

    An approved one is executed once its action is done, or refused by a guard or the provider.
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

    ``usd_per_hour`` is for one node, None where no price applies to the action or none is known.
    ``outcome`` of a refused proposal says which guard or provider refused it, and why.
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
    """One operator action: ``what`` is "mode", "halt", "unhalt", "approve" …

    ``subject`` is a job's name, a proposal's id, or "" for the whole daemon.
    """

    at: datetime
    who: str
    what: str
    subject: str
    detail: str


class Registry(Protocol):
    """The daemon's durable state besides the ledger. Thread-safe; writes are durable on return.

    Every method may raise LedgerError. An operator's change is stored as an AuditEntry as well.
    """

    def restore_lost(self) -> tuple[int, int] | None:
        """Write again what a server lost after it had committed it, as far as this process wrote
        it; return the numbers of the first and the last operator action, None where none was lost.

        Raises LedgerError, and then goes on without them.
        """
        ...

    def submit(self, submission: Submission) -> None:
        """Store a submitted job. Raises SpecError where the name is taken."""
        ...

    def submission(self, name: str) -> Submission | None:
        """Return one job, or None."""
        ...

    def submissions(
        self, desired_states: Collection[DesiredState] = (), tenant: str | None = None
    ) -> tuple[Submission, ...]:
        """Return the submissions with one of these desired states, all if none is given, in the
        order of submission; those of one tenant if one is given."""
        ...

    def schedule_cursor(self, schedule: str) -> datetime | None:
        """Return up to when a recurring job's occurrences were handled; None before the first."""
        ...

    def submit_occurrences(
        self, schedule: str, until: datetime, due: Sequence[Submission], skipped: Sequence[str]
    ) -> None:
        """Store the occurrences of a recurring job until a time, and the reasons of those that are
        skipped, all or nothing; later calls begin after that time."""
        ...

    def set_desired_state(
        self, name: str, desired_state: DesiredState, who: str, at: datetime
    ) -> Submission:
        """Set the job's desired state, and return the changed submission.

        Raises SpecError for an unknown job, and for a cancelled one that is to run again.
        """
        ...

    def set_priority(self, name: str, priority: int, who: str, at: datetime) -> Submission:
        """Set the job's priority, and return the changed submission.

        Raises SpecError for an unknown job, and for a cancelled one.
        """
        ...

    def halt(self, reason: str, who: str, at: datetime) -> Halt:
        """Stop all launches; a halt already in force gets this reason from now on.

        Repeating the reason by the same operator changes nothing.
        """
        ...

    def unhalt(self, who: str, at: datetime) -> None:
        """Allow launches again; without a halt this changes nothing."""
        ...

    def halted(self) -> Halt | None:
        """Return the halt in force, or None."""
        ...

    def mode(self) -> Mode | None:
        """Return the mode as last set, None if it never was."""
        ...

    def set_mode(self, mode: Mode, who: str, at: datetime) -> None:
        """Set the mode from the next tick on."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Store a proposal; one with the same id is replaced."""
        ...

    def proposals(self, states: Collection[ProposalState] = ()) -> tuple[Proposal, ...]:
        """Return the proposals in one of these states, all if none is given, in their order."""
        ...

    def answer(
        self, proposal_id: str, state: ProposalState, who: str, at: datetime, outcome: str = ""
    ) -> Proposal:
        """Approve or reject a proposal, and return it.

        Raises SpecError where there is none of that id, or it is no longer open. An approved one
        may still become executed, refused or withdrawn.
        """
        ...

    def changes(self, after: int = 0) -> tuple[tuple[int, AuditEntry], ...]:
        """Return the operator actions after number ``after``, each with its number from 1."""
        ...


class DesiredState(StrEnum):
    """What a job is to do; a paused job retains its checkpoint and no nodes, like a cancelled one.

    A job that is cancelled is never run again.
    """

    RUN = "run"
    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job and the policy that it follows, as YAML texts.

    ``submitted_at`` is by the daemon's clock, and the origin of the job's relative times. Relative
    paths of the job are below ``workdir``. Of two waiting jobs, the one with the higher
    ``priority`` is served first, and may take the capacity of one with a lower. ``schedule`` names
    the recurring job whose occurrence it is, "" if it is none.
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
    schedule: str = ""


class Scope(StrEnum):
    """Rights: ``read`` only reads, ``submit`` submits and controls jobs, ``admin`` does all."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """The rights of a bearer; the secret itself is not stored. A token with a ``tenant`` reads and
    changes only that tenant's jobs."""

    name: str
    scopes: frozenset[Scope]
    added_at: datetime
    added_by: str
    tenant: str | None = None

    def allows(self, scope: Scope) -> bool:
        """Return whether the token grants ``scope``; each scope includes those before it."""
        order = list(Scope)
        return any(order.index(mine) >= order.index(scope) for mine in self.scopes)


def validate_scopes(name: str, scopes: Collection[Scope], tenant: str | None) -> None:
    """Raise SpecError if a token would allow nothing, or be a tenant's and not limited to jobs."""
    if not scopes:
        raise SpecError(
            f"token {name!r} allows nothing", hint="name read, submit or admin", code="no_scopes"
        )
    if tenant is not None and Scope.ADMIN in scopes:
        raise SpecError(
            f"token {name!r} cannot have the scope admin and be bound to tenant {tenant!r}",
            hint="grant it the scope read or submit",
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
        """Create a token and return its plain text, which is not stored and cannot be recovered.

        Raises SpecError where the name is taken, or as ``validate_scopes``.
        """
        ...

    def token_of(self, plain: str) -> Token | None:
        """Return the token with this plain text, or None, in the same time for any text."""
        ...

    def session_of(self, plain: str) -> str:
        """Return a browser's session for a plain text, which cannot be derived from it."""
        ...

    def token_of_session(self, badge: str) -> Token | None:
        """Return the token of a browser's session, or None; in the same time, as ``token_of``."""
        ...

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, by name."""
        ...

    def revoke(self, name: str, who: str, at: datetime) -> None:
        """Revoke a token. Raises SpecError where there is none of that name."""
        ...
