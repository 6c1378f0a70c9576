"""The types that job and policy files share, and pydantic's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from costopt.spec.document import Document, FieldPath
from costopt.spec.duration import MAX_DURATION_S, PATTERN, parse_duration_s
from costopt.spec.nearest import did_you_mean
from costopt.spec.problem import SpecFileError, SpecProblem

MIN_AMOUNT, MAX_SAFE_INTEGER = 1e-12, 1e24


class FileModel(BaseModel):
    """A mapping of a file: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _duration_s(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_duration_s(value)
        except ValueError as error:
            raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None
    return value


def _representable(value: float) -> float:
    if value != 0 and not MIN_AMOUNT <= abs(value) <= MAX_SAFE_INTEGER:
        raise PydanticCustomError(
            "range", f"expected a size between {MIN_AMOUNT:g} and {MAX_SAFE_INTEGER:g}"
        )
    return value


def _not_bool(value: object) -> object:
    """Python has True equal 1, so that a literal 1 would accept it."""
    if isinstance(value, bool):
        raise PydanticCustomError("version", "expected 1")
    return value


_DURATION_SCHEMA = {
    "type": ["string", "number"],
    "examples": ["90m", "72h", "1d 12h", 600],
    "pattern": PATTERN,
    "minimum": 0,
    "maximum": MAX_DURATION_S,
}

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Version = Annotated[Literal[1], BeforeValidator(_not_bool)]
Positive = Annotated[
    float,
    Field(gt=0),
    AfterValidator(_representable),
    WithJsonSchema(
        {
            "type": "number",
            "exclusiveMinimum": 0,
            "minimum": MIN_AMOUNT,
            "maximum": MAX_SAFE_INTEGER,
        }
    ),
]
NotNegative = Annotated[
    float,
    Field(ge=0),
    AfterValidator(_representable),
    WithJsonSchema(
        {
            "type": "number",
            "minimum": 0,
            "maximum": MAX_SAFE_INTEGER,
            "not": {"exclusiveMinimum": 0, "exclusiveMaximum": MIN_AMOUNT},
        }
    ),
]
Share = Annotated[
    float,
    Field(gt=0, le=1),
    AfterValidator(_representable),
    WithJsonSchema({"type": "number", "minimum": MIN_AMOUNT, "maximum": 1}),
]
Count = Annotated[int, Field(ge=1, le=10_000)]
DurationS = Annotated[
    float,
    Field(ge=0, le=MAX_DURATION_S),
    BeforeValidator(_duration_s),
    WithJsonSchema(_DURATION_SCHEMA),
]

RegionName = Annotated[str, Field(pattern=r"^[a-z0-9_-]+/[a-z0-9-]+$")]

AnySection = TypeVar("AnySection", bound=FileModel)


def parse_section(kind: type[AnySection], document: Document) -> AnySection:
    """The document as ``kind``. Raises SpecFileError with every problem."""
    try:
        return kind.model_validate(document.values)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise SpecFileError([_problem(kind, document, each) for each in details]) from None


def _problem(kind: type[FileModel], document: Document, detail: ErrorDetails) -> SpecProblem:
    at: FieldPath = detail["loc"]
    code = detail["type"]
    match code:
        case "missing":
            description = _fields(kind, at[:-1])[str(at[-1])].description or ""
            return document.problem(at, f"is missing: {description}", code=code)
        case "extra_forbidden":
            known = sorted(_fields(kind, at[:-1]))
            near = did_you_mean(str(at[-1]), known)
            message = f"unknown key{near}" if near else f"unknown key; allowed: {', '.join(known)}"
            return document.problem(at, message, on_key=True, code=code)
    return document.problem(document.known(at), _message(detail), code=code)


def _message(detail: ErrorDetails) -> str:
    said = detail["msg"].replace("Input should be", "expected").replace("Value error, ", "")
    value = detail["input"]
    match detail["type"]:
        case "enum" | "literal_error":
            allowed = str(detail["ctx"]["expected"])
            near = did_you_mean(str(value), (word.strip("'") for word in _words(allowed)))
            return f"{value!r} is not allowed; {said}{near}"
        case "model_type":
            return f"expected a mapping of fields to values, got {_shown(value)}"
        case "too_short" if value == []:
            return "expected at least one entry"
        case "string_pattern_mismatch" if "{0,62}" in said:
            said = "expected letters, digits, '.', '_' and '-', at most 63, the first no sign"
        case "string_pattern_mismatch" if "[A-Za-z]+" in said:
            said = "expected letters only, such as p for p5.48xlarge"
        case "string_pattern_mismatch" if "/[a-z0-9-]+" in said:
            said = "expected provider/region, such as aws/us-east-1"
    return f"{said[:1].lower()}{said[1:]}, got {_shown(value)}"


def _words(allowed: str) -> list[str]:
    return allowed.replace(" or ", ", ").split(", ")


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _fields(kind: type[FileModel], at: FieldPath) -> dict[str, Any]:
    """The fields of the section that stands at ``at`` below ``kind``."""
    for part in at:
        if isinstance(part, str) and part in kind.model_fields:
            kind = next(_sections(kind.model_fields[part].annotation), kind)
    return dict(kind.model_fields)


def _sections(annotation: Any) -> Iterator[type[FileModel]]:
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)
