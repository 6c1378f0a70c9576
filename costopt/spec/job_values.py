"""Values that only job files have: commands, variables, moments, and times that may be auto."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from costopt.spec.fields import MAX_DURATION_S, DurationS, Text
from costopt.spec.fields import PATTERN as DURATION_PATTERN
from costopt.spec.moments import INSTANT_PATTERN, LOCAL_PATTERN, moment

ANY_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
"""To check the form of a moment."""


def _words(value: object) -> object:
    """A command line as its words, split as a shell would, without expansion."""
    if not isinstance(value, str):
        return value
    import shlex

    try:
        return shlex.split(value)
    except ValueError as error:
        raise PydanticCustomError(
            "command", "cannot be split into words: {reason}", {"reason": str(error).lower()}
        ) from None


def _text(value: object) -> object:
    """A whole number as text, since ``EPOCHS: 3`` is how people write a variable."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


def _auto(value: object) -> object:
    return None if value == "auto" else value


def _when(value: object) -> object:
    """A moment stays text, once it is known to be one; a number of seconds becomes text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:f}s"
    if isinstance(value, str):
        try:
            moment(value, ANY_ORIGIN)
        except ValueError as error:
            raise PydanticCustomError("moment", "{reason}", {"reason": str(error)}) from None
    return value


Command = Annotated[
    list[Text],
    Field(min_length=1),
    BeforeValidator(_words),
    WithJsonSchema(
        {
            "type": ["array", "string"],
            "items": {"type": "string", "minLength": 1, "maxLength": 1024},
            "minItems": 1,
            "pattern": r"\S",
        }
    ),
]
Variable = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "integer"]})]
Moment = Annotated[
    Text,
    BeforeValidator(_when),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "examples": ["72h", "2026-05-01T08:00:00Z", "Mon 9:00", "Mon 9:00 Europe/Berlin"],
            "pattern": rf"{DURATION_PATTERN}|{INSTANT_PATTERN}|{LOCAL_PATTERN}",
            "maxLength": 1024,
            "minimum": 0,
            "maximum": MAX_DURATION_S,
        }
    ),
]


def _or_auto(**bound: float) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": ["string", "number", "null"],
            "examples": ["auto", "10m", 600],
            "pattern": f"^auto$|{DURATION_PATTERN}",
            "maximum": MAX_DURATION_S,
            **bound,
        }
    )


Interval = Annotated[DurationS | None, BeforeValidator(_auto), _or_auto(exclusiveMinimum=0)]
Time = Annotated[DurationS | None, BeforeValidator(_auto), _or_auto(minimum=0)]
