"""The API's responses as models: each has exactly the keys that it declares.

A view of the daemon (a frozen dataclass) becomes an object with its fields and public properties. A
pool is its name, a time ISO 8601 in UTC. A value that is unknown, or not a finite number, is null.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    create_model,
)
from pydantic_core import CoreSchema

from costopt.daemon.intake.admission import AdmissionResult
from costopt.daemon.loop.recurring_jobs import Occurrence
from costopt.daemon.shared_state import Alert, DecisionRow, FleetNode, JobForecast
from costopt.domain.control import AuditEntry, DesiredState, Halt, Mode, Proposal, Scope, Token
from costopt.domain.events import EVENT_TYPES, DecisionMade, Event
from costopt.domain.market import Pool
from costopt.domain.ports import RecordedEvent
from costopt.domain.text import encodable_text
from costopt.ledger.summary import JobSummary

T = TypeVar("T")


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _encodable(value: object) -> object:
    return encodable_text(value) if isinstance(value, str) else value


class _AsModel:
    """Has pydantic take a dataclass by ``model_of``, as it would leave out properties."""

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(_answer_type(source))


View = Annotated[T, _AsModel()]
Number = Annotated[float | None, BeforeValidator(_finite)]
Text = Annotated[str, BeforeValidator(_encodable)]
"""A text that may come from outside, such as a message with a file's name."""


_MODELS: dict[type[Any], type[ResponseModel]] = {}


class ResponseModel(BaseModel):
    """A JSON object of an answer, filled from the attributes of an object of ours."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


def model_of(view: type[Any]) -> type[ResponseModel]:
    """Return the model of a dataclass. An event has its ``kind`` as well."""
    if view not in _MODELS:
        _MODELS[view] = _make_model(view)
    return _MODELS[view]


def _make_model(view: type[Any]) -> type[ResponseModel]:
    hints = get_type_hints(view)
    names = [field.name for field in fields(view)]
    for ancestor in reversed(view.__mro__):
        getters = {name: p.fget for name, p in vars(ancestor).items() if isinstance(p, property)}
        public = {name: getter for name, getter in getters.items() if not name.startswith("_")}
        names += public
        hints |= {name: get_type_hints(getter)["return"] for name, getter in public.items()}
    types: dict[str, Any] = {name: (_answer_type(hints[name]), ...) for name in names}
    if issubclass(view, Event):
        types = {"kind": (Literal[view.kind], ...), **types}
    return create_model(view.__name__, __base__=ResponseModel, __doc__=view.__doc__, **types)


def to_json(view: Any) -> dict[str, Any]:
    """Return a dataclass as the API answers it, in what ``json.dumps`` can write."""
    return model_of(type(view)).model_validate(view).model_dump(mode="json")


def _answer_type(hint: Any) -> Any:
    """Return the type of a dataclass's field as it is in an answer."""
    if hint in (float, str):
        return Number if hint is float else Text
    if hint is Pool:
        return Annotated[str, BeforeValidator(str)]
    if hint is Event:
        kinds = Union[tuple(model_of(each) for each in EVENT_TYPES)]  # type: ignore[valid-type]  # noqa: UP007
        return Annotated[kinds, Field(discriminator="kind")]
    if is_dataclass(hint):
        return model_of(hint)  # type: ignore[arg-type]
    inner = tuple(each if each is Ellipsis else _answer_type(each) for each in get_args(hint))
    if not inner:
        return hint
    origin = get_origin(hint)
    return Union[inner] if origin in (Union, UnionType) else origin[inner]  # noqa: UP007


class SubmissionInfo(ResponseModel):
    """A submitted job, without its documents, which may hold what not every reader may see.

    ``schedule`` names the recurring job whose occurrence it is, "" if it is none.
    """

    name: str
    tenant: str
    priority: int
    desired_state: DesiredState
    workdir: Text
    submitted_at: datetime
    submitted_by: Text
    schedule: Text


class SubmitResponse(SubmissionInfo):
    """A submitted job, and whether a plan for it alone meets its deadline."""

    verdict: View[AdmissionResult]


class JobListItem(ResponseModel):
    """A job and its progress.

    ``blocked_by`` gives the reason why it has no nodes now, or ""; ``next_at`` is the next
    occurrence of a recurring job.
    """

    submission: SubmissionInfo
    summary: View[JobSummary]
    blocked_by: Text
    slack_s: Number
    next_at: datetime | None


class JobList(ResponseModel):
    """Jobs, in the order of submission.

    ``next`` is the cursor of the page that follows, null after the last; so in every list.
    """

    jobs: tuple[JobListItem, ...]
    next: str | None


class OccurrenceList(ResponseModel):
    """The next occurrences of recurring jobs, the earliest first."""

    occurrences: tuple[View[Occurrence], ...]
    next: str | None


class JobDetail(JobListItem):
    """A job with its living nodes, its last decision, and its forecast if one was made.

    ``finish_at_pace`` is when it is done at its present pace, ``safest_finish_at`` if it went to
    the safest capacity at once.
    """

    nodes: tuple[View[FleetNode], ...]
    decision: View[DecisionMade] | None
    forecast: View[JobForecast] | None
    finish_at_pace: datetime | None
    safest_finish_at: datetime | None


class JobDocuments(ResponseModel):
    """The YAML texts of a job and of the policy that it follows."""

    job: str
    policy: str


class EventList(ResponseModel):
    """For the events that follow, repeat with ``after`` set to the highest ``seq`` of these."""

    events: tuple[View[RecordedEvent], ...]


class DecisionList(ResponseModel):
    """Decisions, the newest first."""

    decisions: tuple[View[DecisionRow], ...]
    next: str | None


class ProposalList(ResponseModel):
    """Proposals, oldest first."""

    proposals: tuple[View[Proposal], ...]
    next: str | None


class HaltResponse(ResponseModel):
    """The current halt, null if there is none."""

    halt: View[Halt] | None


class ModeResponse(ResponseModel):
    """The daemon's mode."""

    mode: Mode


class AuditLogEntry(ResponseModel):
    """An operator action, numbered from 1."""

    seq: int
    change: View[AuditEntry]


class AuditLog(ResponseModel):
    """Operator actions, oldest first."""

    changes: tuple[AuditLogEntry, ...]


class AlertList(ResponseModel):
    """Oldest first; only the newest thousand of this process are kept."""

    alerts: tuple[View[Alert], ...]


class TokenList(ResponseModel):
    """Tokens without their secrets, which are stored nowhere."""

    tokens: tuple[View[Token], ...]


class TokenCreated(ResponseModel):
    """A new token; ``token``, its secret, is shown only once."""

    name: str
    scopes: tuple[Scope, ...]
    token: str
    tenant: str | None


class TokenRevoked(ResponseModel):
    """The token of this name is no longer accepted."""

    name: str


class LivenessResponse(ResponseModel):
    """Whether the daemon's loop runs."""

    alive: bool


class ReadinessResponse(ResponseModel):
    """Whether the daemon can do its work."""

    ready: bool


class ProblemDetails(ResponseModel):
    """Why a request was not answered (RFC 9457).

    ``exit_code`` is that of the command line, ``problems`` are places and what is wrong there.
    """

    title: str
    status: int
    detail: Text
    hint: Text | None
    exit_code: int
    problems: tuple[Text, ...]
