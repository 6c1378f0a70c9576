"""Parameters and bodies of requests. Unknown keys and values of another type are refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
)

from costopt.domain.control import JobFilter, Mode, ProposalState, Scope

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_SAFE_INTEGER = 2**53 - 1
"""The largest whole number that every JSON reader knows exactly."""
TEXT = r"^[^\u0000]*$"
WORDS = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
ABSOLUTE_PATH = r"^(/[^\u0000]*)?$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,159}$"
PATTERN_MEANINGS = {
    TEXT: "text without a null character",
    WORDS: "some words",
    ABSOLUTE_PATH: "an absolute path",
    NAME: "letters, digits and . _ -",
    ID: "letters, digits and . _ : -",
}


def _digits(text: str) -> int:
    """Python's int() also reads signs, blanks, underscores and other alphabets' digits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError("must be a whole number")
    return int(text)


def _whole(value: object) -> object:
    """JSON Schema counts 2.0 as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_DIGITS = BeforeValidator(_digits)
Document = Annotated[str, Field(max_length=MAX_DOCUMENT_BYTES, pattern=TEXT)]
Name = Annotated[str, Field(max_length=63, pattern=NAME)]
Priority = Annotated[int, Strict(), Field(ge=-1000, le=1000), BeforeValidator(_whole)]

JobName = Annotated[str, Path(max_length=63, pattern=NAME, description="the job's name")]
TokenName = Annotated[str, Path(max_length=63, pattern=NAME, description="the token's name")]
DecisionId = Annotated[str, Path(max_length=160, pattern=ID, description="the decision's id")]
ProposalId = Annotated[str, Path(max_length=160, pattern=ID, description="the proposal's id")]
NodeId = Annotated[str, Path(max_length=160, pattern=ID, description="the node's id")]
CommandId = Annotated[str, Path(max_length=160, pattern=ID, description="the command's id")]
TaskNumber = Annotated[int, Path(ge=0, le=1_000_000, description="a task, from 0"), _DIGITS]
After = Annotated[
    int, Query(ge=0, le=MAX_SAFE_INTEGER, description="only what follows this number"), _DIGITS
]
AfterByte = Annotated[
    int, Query(ge=0, le=MAX_SAFE_INTEGER, description="only what follows this byte"), _DIGITS
]
Limit = Annotated[int, Query(ge=1, le=1000, description="the maximum number of rows"), _DIGITS]
LoggedNode = Annotated[
    str | None,
    Query(max_length=160, pattern=ID, description="the node; default: the job's newest"),
    WithJsonSchema({"type": "string", "maxLength": 160, "pattern": ID}),
]
Cursor = Annotated[
    str | None,
    Query(max_length=160, pattern=ID, description="the `next` of the page before; default: none"),
    WithJsonSchema({"type": "string", "maxLength": 160, "pattern": ID}),
]
JobStateFilter = Annotated[
    JobFilter,
    Query(description="only these jobs; recent: those that are open, and the last 50 that ended"),
]
TenantFilter = Annotated[
    str | None,
    Query(max_length=63, pattern=NAME, description="only this tenant's jobs; default: all"),
    WithJsonSchema({"type": "string", "maxLength": 63, "pattern": NAME}),
]
NameFilter = Annotated[
    str, Query(max_length=63, pattern=TEXT, description="only jobs with this in their name")
]
Since = Annotated[
    AwareDatetime | None,
    Query(description="only jobs submitted at or after this time; default: all"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
StateFilter = Annotated[
    ProposalState | None,
    Query(description="only proposals in this state; default: all"),
    WithJsonSchema({"type": "string", "enum": list(ProposalState)}),
]


class RequestBody(BaseModel):
    """The JSON object of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobRequest(RequestBody):
    """``job`` is a job's YAML text, ``policy`` a policy's, or the name of a bundled one.

    Relative paths of the job count from ``workdir``, a folder that the daemon can read; "" is the
    daemon's own folder for jobs.
    """

    job: Document
    policy: Document = "cheapest"
    workdir: Annotated[str, Field(max_length=4096, pattern=ABSOLUTE_PATH)] = ""


class SubmitRequest(JobRequest):
    """A job to submit. ``anyway``: accept it even if no plan meets its deadline."""

    priority: Priority = 0
    anyway: Annotated[bool, Strict()] = False


class PriorityRequest(RequestBody):
    """A job with a higher priority is served earlier."""

    priority: Priority


class CommandRequest(RequestBody):
    """A command for a node, without a shell; by default for rank 0 of the newest gang."""

    command: Annotated[
        list[Annotated[str, Field(max_length=16_384, pattern=TEXT)]],
        Field(min_length=1, max_length=256),
    ]
    node: Annotated[str, Field(max_length=160, pattern=ID)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 60.0


class HaltRequest(RequestBody):
    """Why launches stop."""

    reason: Annotated[str, Field(max_length=1000, pattern=WORDS)]


class ModeRequest(RequestBody):
    """The mode to set."""

    mode: Mode


class TokenRequest(RequestBody):
    """A token's name and scopes; with a ``tenant`` it is limited to that tenant's jobs."""

    name: Name
    scopes: list[Scope]
    tenant: Name | None = None
