"""The encoding of an event as one line of JSON.

The line is an object with ``v`` (the schema version), ``kind`` (the event's ``kind``) and one
member per field: times as ISO 8601 in UTC, tuples as arrays, enums by value, an unknown as null.
A field that has a default may be missing, so that older ledgers stay readable when an event
gains one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from costopt.database.failures import RESTORE_HINT
from costopt.domain.errors import LedgerError
from costopt.domain.events import EVENT_TYPES, Event
from costopt.domain.text import encodable_text

SCHEMA_VERSION = 1
UNRECORDABLE = "unrecordable"
"""The code of the error for an event that is not written: the ledger itself is sound."""

_UPGRADE = (
    "a newer costopt wrote this ledger: upgrade costopt to read it; if none did, it is damaged:"
    " restore its newest backup with costopt daemon restore"
)

_Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: _Read
    required: bool


def encode(event: Event) -> str:
    """Return the event as JSON without line breaks, in ASCII, which ``decode`` reads.

    A lone surrogate in a text, which cannot be displayed, is written as U+FFFD. Raises LedgerError
    for what could not be read back: a naive time, a number that is not finite, a value that is not
    of its field's type, or a class that is not an event.
    """
    if type(event) not in EVENT_TYPES:
        raise LedgerError(f"{type(event).__name__} is not an event of the ledger")
    values = {field.name: _encodable(getattr(event, field.name)) for field in _fields(event.kind)}
    try:
        line = _ENCODER.encode({"v": SCHEMA_VERSION, "kind": event.kind, **values})
    except (TypeError, ValueError, OverflowError) as error:
        raise _unrecordable(event, str(error)) from error
    try:
        read = decode(line)
    except LedgerError as error:
        raise _unrecordable(event, error.message) from error
    wrong = [name for name, value in values.items() if getattr(read, name) != value]
    if wrong:
        raise _unrecordable(event, f"its {wrong[0]} would not be read back as it is")
    return line


def check_finite(event: Event) -> None:
    """Raise LedgerError for an event with a number that is not finite, before it is written."""
    for field in _fields(event.kind):
        value = getattr(event, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise _unrecordable(event, f"its {field.name} is {value}")


def decode(line: str) -> Event:
    """Return the event that ``encode`` wrote.

    Raises LedgerError where the line is not an event, or a newer costopt's.
    """
    body = _parse(line)
    version, kind = body.pop("v", None), body.pop("kind", None)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise LedgerError(
            f"event schema version {version} is newer than {SCHEMA_VERSION}", hint=_UPGRADE
        )
    if version != SCHEMA_VERSION:
        raise LedgerError(f"an event has the schema version {version!r}", hint=RESTORE_HINT)
    if not isinstance(kind, str) or kind not in _kinds():
        raise LedgerError(f"unknown kind of event: {kind!r}", hint=_UPGRADE)
    return _build(_kinds()[kind], body)


def _unrecordable(event: Event, why: str) -> LedgerError:
    return LedgerError(
        f"{event.kind} of job {event.job!r} cannot be recorded: {why}",
        hint="record a figure that is unknown as None, and times with their zone",
        code=UNRECORDABLE,
    )


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable_text(value)
    if isinstance(value, tuple):
        return tuple(map(_encodable, value))
    return value


def _parse(line: str) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LedgerError(
            f"an event is not JSON: {error}", hint=RESTORE_HINT, code="invalid_json"
        ) from error
    if not isinstance(body, dict):
        raise LedgerError("an event is not a JSON object", hint=RESTORE_HINT, code="invalid_json")
    return body


def _build(event_type: type[Event], body: dict[str, Any]) -> Event:
    values: dict[str, Any] = {}
    for field in _fields(event_type.kind):
        if field.name in body:
            values[field.name] = _value(event_type, field, body.pop(field.name))
        elif field.required:
            raise LedgerError(f"{event_type.kind} lacks its field {field.name}", hint=RESTORE_HINT)
    if body:
        unknown = ", ".join(sorted(body))
        raise LedgerError(f"{event_type.kind} has unknown fields: {unknown}", hint=_UPGRADE)
    return event_type(**values)


def _value(event_type: type[Event], field: _Field, raw: Any) -> Any:
    try:
        return field.read(raw)
    except (TypeError, ValueError, OverflowError) as error:
        raise LedgerError(
            f"{event_type.kind}.{field.name} cannot be read: {error}",
            hint=RESTORE_HINT,
            code="unreadable",
        ) from error


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no zone")
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


_ENCODER = json.JSONEncoder(default=_jsonable, allow_nan=False, separators=(",", ":"))


@cache
def _kinds() -> dict[str, type[Event]]:
    return {event_type.kind: event_type for event_type in EVENT_TYPES}


@cache
def _fields(kind: str) -> tuple[_Field, ...]:
    event_type = _kinds()[kind]
    hints = get_type_hints(event_type)
    return tuple(
        _Field(
            field.name,
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(event_type)
    )


def _reader(hint: Any) -> _Read:
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not NoneType)
        return _optional(_reader(inner))
    if get_origin(hint) is tuple:
        return _tuple_reader(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return {datetime: _time, float: _float, int: _int, bool: _bool, str: _str}[hint]


def _optional(read: _Read) -> _Read:
    return lambda raw: None if raw is None else read(raw)


def _tuple_reader(args: tuple[Any, ...]) -> _Read:
    if len(args) == 2 and args[1] is Ellipsis:
        read = _reader(args[0])
        return lambda raw: tuple(read(item) for item in _list(raw))
    readers = tuple(_reader(arg) for arg in args)
    return lambda raw: tuple(read(item) for read, item in zip(readers, _list(raw), strict=True))


def _list(raw: Any) -> list[Any]:
    if not isinstance(raw, list):
        raise TypeError(f"{raw!r} is not an array")
    return raw


def _time(raw: Any) -> datetime:
    at = datetime.fromisoformat(raw)
    if at.tzinfo is None:
        raise ValueError(f"the time {raw!r} has no zone")
    return at.astimezone(UTC)


def _float(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw):
        raise TypeError(f"{raw!r} is not a finite number")
    return float(raw)


def _int(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise TypeError(f"{raw!r} is not a whole number")
    return raw


def _bool(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise TypeError(f"{raw!r} is neither true nor false")
    return raw


def _str(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(f"{raw!r} is not a text")
    return encodable_text(raw)
