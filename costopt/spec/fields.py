"""The field types that job, policy and account files share, and validation messages in plain words.

Durations are written as 90m, 1d 12h, 2.5h, or a number of seconds; instants in ISO 8601 with a time
zone; some fields take either, a duration being counted from another instant. Pydantic's errors are
rephrased, with a suggestion for a misspelt word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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

from costopt.spec.yaml_document import Document, FieldPath, SpecFileError, SpecProblem

MAX_DURATION_S = 3650 * 86400.0

_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PART = re.compile(rf"({_NUMBER.pattern}) ?(w|d|h|min|m|s)(?![a-z])\s*")
PATTERN = r"^\s*([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)? ?([wdhmsWDHMS]|[mM][iI][nN])\s*)+)\s*$"
"""What ``parse_duration_s`` accepts, as far as a regular expression (ECMA 262) can say it."""

_EXPECTED = "expected a duration such as 90m, 72h or 1d 12h, or a number of seconds"


def parse_duration_s(text: str) -> float:
    """Seconds of ``text``: parts of w, d, h, m (or min) and s, each unit at most once.

    A number alone is in seconds. Raises ValueError, whose message says what is allowed, also
    beyond ten years.
    """
    rest = text.strip().lower()
    total_s = float(rest) if _NUMBER.fullmatch(rest) else _sum_parts_s(rest)
    if total_s > MAX_DURATION_S:
        raise ValueError("expected at most ten years")
    return total_s


def _sum_parts_s(rest: str) -> float:
    if not rest:
        raise ValueError(_EXPECTED)
    total_s, seen = 0.0, set[int]()
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ValueError(_EXPECTED)
        unit_s = _SECONDS[part[2]]
        if unit_s in seen:
            raise ValueError(f"{part[2]} is given twice; {_EXPECTED}")
        seen.add(unit_s)
        total_s += float(part[1]) * unit_s
        rest = rest[part.end() :]
    return total_s


MIN_BARE_SECONDS = 3600.0
"""A deadline below an hour, written as a number without a unit, was probably meant in hours."""


def missing_unit(text: str) -> str | None:
    """Return what to ask of a deadline that is a small number without its unit, else None."""
    number = text.strip()
    if not _NUMBER.fullmatch(number) or not 0 < float(number) < MIN_BARE_SECONDS:
        return None
    return f"{number} is {number} seconds; did you mean {number}h? {number}s says seconds"


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


AMOUNT = re.compile(
    r"\x24? ?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)? ?([kKMBGT]?)"
)
_AMOUNT_UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def parse_amount(value: object) -> object:
    """Return the number of a text such as 70B, 150M or $60k; another value as it is."""
    match = AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    whole, fraction, exponent, unit = match.groups(default="")
    return float(f"{whole.replace(',', '')}{fraction}{exponent}") * _AMOUNT_UNITS[unit]


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
Amount = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(parse_amount),
    AfterValidator(_representable),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "examples": ["70B", "150M", "$60k", 1e9],
            "pattern": f"^ *(?:{AMOUNT.pattern}) *$",
            "exclusiveMinimum": 0,
            "minimum": MIN_AMOUNT,
            "maximum": MAX_SAFE_INTEGER,
        }
    ),
]
"""A number of any size, also as people write it; dollars among them."""
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
KeptS = Annotated[
    float,
    Field(ge=0, le=86_400),
    BeforeValidator(_duration_s),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""At most a day: what is kept is paid for."""

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


PATTERN_TEXTS = (
    ("{0,62}", "expected letters, digits, '.', '_' and '-', at most 63, the first no sign"),
    ("epochs?", "expected what took the time, such as epoch, 1000 steps, or job for all the work"),
    ("[x×]", "expected GPUs such as H100, H100:8 or 8xH100"),
    ("[A-Za-z]+", "expected letters only, such as p for p5.48xlarge"),
    ("/[a-z0-9-]+", "expected provider/region, such as aws/us-east-1"),
)
"""What a value should be, by a part of the pattern that it does not match."""


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
        case "secret":  # what stands there may be the secret itself
            return said
        case "string_pattern_mismatch" if "secret" in said:
            return "expected the name of a secret, not its value"
        case "too_short" if value == []:
            return "expected at least one entry"
        case "string_pattern_mismatch":
            said = next((text for part, text in PATTERN_TEXTS if part in said), said)
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
    """The fields of the section at ``at`` below ``kind``."""
    for part in at:
        if isinstance(part, str) and part in kind.model_fields:
            kind = next(_sections(kind.model_fields[part].annotation), kind)
    return dict(kind.model_fields)


def _sections(annotation: Any) -> Iterator[type[FileModel]]:
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


SHORT_WORD_LENGTH = 3
"""In words up to this length one wrong letter is a large part."""


def close_matches(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known words that look most like ``word``, best first, in any case of letters."""
    from difflib import get_close_matches

    originals = {name.lower(): name for name in known}
    cutoff = 0.5 if len(word) <= SHORT_WORD_LENGTH else 0.6
    matches = get_close_matches(word.lower()[:80], originals, n=3, cutoff=cutoff)
    return tuple(originals[match] for match in matches)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or nothing where no known word is near."""
    matches = close_matches(word, known)
    if not matches:
        return ""
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?"
