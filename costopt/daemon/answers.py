"""What the API answers and is told, where the daemon's own views do not fit as they are."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated

from costopt.daemon.json_schema import IntegerRange, StringPattern
from costopt.daemon.judge import AdmissionResult
from costopt.daemon.views import Alert, DecisionRow, FleetNode, JobStatus
from costopt.domain.control import AuditEntry, Halt, Mode, Proposal
from costopt.domain.events import DecisionMade
from costopt.domain.ports import RecordedEvent
from costopt.domain.submission import DesiredState, Submission
from costopt.domain.token import Scope, Token
from costopt.ledger.summary import JobSummary

MAX_DOCUMENT_BYTES = 256 * 1024
PRIORITY = IntegerRange(-1000, 1000)
NAME_PATTERN = StringPattern(63, r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", "letters, digits and . _ -")
TEXT = StringPattern(MAX_DOCUMENT_BYTES)
REASON_PATTERN = StringPattern(1000, r"^[^\u0000]*[^\s\u0000][^\u0000]*$", "some words")
PATH = StringPattern(4096, r"^(/[^\u0000]*)?$", "an absolute path")


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """``job`` is a job's YAML text, ``policy`` a policy's, or the name of a shipped one.

    Relative paths of the job count from ``workdir``, a folder that the daemon can read; "" is the
    daemon's own folder for jobs. ``anyway``: take the job also where no plan ends it in time.
    """

    job: Annotated[str, TEXT]
    policy: Annotated[str, TEXT] = "cheapest"
    workdir: Annotated[str, PATH] = ""
    priority: Annotated[int, PRIORITY] = 0
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class PriorityRequest:
    """The higher, the earlier a job is served."""

    priority: Annotated[int, PRIORITY]


@dataclass(frozen=True, slots=True)
class HaltRequest:
    """Why launches stop."""

    reason: Annotated[str, REASON_PATTERN]


@dataclass(frozen=True, slots=True)
class ModeRequest:
    """How far the daemon goes by itself."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A name for a token, and what its bearer may do; with a ``tenant`` only with its jobs."""

    name: Annotated[str, NAME_PATTERN]
    scopes: tuple[Scope, ...]
    tenant: Annotated[str, NAME_PATTERN] | None = None


@dataclass(frozen=True, slots=True)
class SubmissionInfo:
    """A job as it was handed in, without its documents."""

    name: str
    tenant: str
    priority: int
    intent: DesiredState
    workdir: str
    submitted_at: datetime
    submitted_by: str


@dataclass(frozen=True, slots=True)
class SubmitResponse(SubmissionInfo):
    """A job that was handed in, and whether a plan for it alone ends it in time."""

    verdict: AdmissionResult


@dataclass(frozen=True, slots=True)
class JobListItem:
    """A job and how it stands. ``held_because`` says why it gets no nodes now, "" else."""

    submission: SubmissionInfo
    summary: JobSummary
    held_because: str
    slack_s: float | None


@dataclass(frozen=True, slots=True)
class JobList:
    """Every job that was ever handed in, in the order of submission."""

    jobs: tuple[JobListItem, ...]


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with its living nodes and its last decision."""

    submission: SubmissionInfo
    summary: JobSummary
    held_because: str
    slack_s: float | None
    nodes: tuple[FleetNode, ...]
    decision: DecisionMade | None


@dataclass(frozen=True, slots=True)
class JobDocuments:
    """The YAML texts of a job and of the policy that it follows."""

    job: str
    policy: str


@dataclass(frozen=True, slots=True)
class EventList:
    """Ask for those that follow with ``after`` the highest ``seq`` of these."""

    events: tuple[RecordedEvent, ...]


@dataclass(frozen=True, slots=True)
class DecisionList:
    """The newest first."""

    decisions: tuple[DecisionRow, ...]


@dataclass(frozen=True, slots=True)
class ProposalList:
    """In the order in which they were made."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class HaltResponse:
    """The halt that stands, null where none does."""

    halt: Halt | None


@dataclass(frozen=True, slots=True)
class ModeResponse:
    """How far the daemon goes by itself."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class AuditLogEntry:
    """Something that a person told the daemon, counted from 1."""

    seq: int
    change: AuditEntry


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Oldest first."""

    changes: tuple[AuditLogEntry, ...]


@dataclass(frozen=True, slots=True)
class AlertList:
    """Oldest first; only the newest thousand of this process are kept."""

    alerts: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class TokenList:
    """Without their secrets, which are kept nowhere."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class TokenCreated:
    """``token`` cannot be had again."""

    name: str
    scopes: tuple[Scope, ...]
    token: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class TokenRevoked:
    """The token of this name is one no longer."""

    name: str


@dataclass(frozen=True, slots=True)
class LivenessResponse:
    """Whether the daemon's loop goes on."""

    alive: bool


@dataclass(frozen=True, slots=True)
class ReadinessResponse:
    """Whether the daemon can do its work."""

    ready: bool


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """Why a request was not answered, as RFC 9457 has it.

    ``exit_code`` is what the command line ends with, ``problems`` are places and what is wrong
    there.
    """

    title: str
    status: int
    detail: str
    hint: str | None = None
    exit_code: int = 1
    problems: tuple[str, ...] = field(default_factory=tuple)


def submitted(submission: Submission) -> SubmissionInfo:
    """Without the documents, which may hold what is not everybody's to see."""
    return SubmissionInfo(
        submission.name,
        submission.tenant,
        submission.priority,
        submission.intent,
        submission.workdir,
        submission.submitted_at,
        submission.submitted_by,
    )


def taken(submission: Submission, verdict: AdmissionResult) -> SubmitResponse:
    """The same with a verdict."""
    said = submitted(submission)
    values = {field.name: getattr(said, field.name) for field in fields(said)}
    return SubmitResponse(**values, verdict=verdict)


def job_row(status: JobStatus) -> JobListItem:
    """A row of the list."""
    return JobListItem(
        submitted(status.submission), status.summary, status.held_because, status.slack_s
    )  # fmt: skip


def job_detail(status: JobStatus) -> JobDetail:
    """Everything about one job."""
    return JobDetail(
        submitted(status.submission),
        status.summary,
        status.held_because,
        status.slack_s,
        status.nodes,
        status.decision,
    )
