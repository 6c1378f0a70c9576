"""Frozen dataclasses as JSON values.

An object has a member per field and per property; a pool is its name, a time ISO 8601 in UTC, an
enum its value, a mapping an object, a tuple an array. An event has its ``kind``. What is
unknown, or no finite number, is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any

from costopt.domain.events import Event
from costopt.domain.market import Pool

KIND = "kind"


def to_json(value: object) -> Any:
    """What ``json.dumps`` can write. Raises TypeError for what has no form."""
    match value:
        case Enum():
            return to_json(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Pool():
            return str(value)
        case Mapping():
            return {str(key): to_json(inner) for key, inner in value.items()}
        case Sequence() | frozenset():
            return [to_json(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


@cache
def json_fields(of: type[Any]) -> tuple[str, ...]:
    """Names of the fields and public properties of a dataclass."""
    own = tuple(field.name for field in fields(of))
    return own + tuple(
        name
        for ancestor in reversed(of.__mro__)
        for name, member in vars(ancestor).items()
        if isinstance(member, property) and not name.startswith("_")
    )


def _object(value: Any) -> dict[str, Any]:
    form = {name: to_json(getattr(value, name)) for name in json_fields(value.__class__)}
    return {KIND: value.kind, **form} if isinstance(value, Event) else form
