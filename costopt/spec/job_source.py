"""A job as Python has it: a file, a text in YAML, or a mapping of its fields."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from costopt.spec.yaml_document import (
    Document,
    FieldPath,
    SourceLocation,
    SpecFileError,
    SpecProblem,
    parse_document,
    read_document,
)

UNNAMED = "job"
"""The name of a text or a mapping in messages."""
NOWHERE = SourceLocation(0, 0)

JobFields = str | os.PathLike[str] | Mapping[str, object]


def job_document(source: JobFields) -> Document:
    """Return the values of a file, of a text of several lines in YAML, or of a mapping.

    Raises SpecFileError.
    """
    if isinstance(source, Mapping):
        values = _plain_mapping(source, "")
        return Document(UNNAMED, values, dict.fromkeys(_paths(values), NOWHERE), {})
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return parse_document(source, UNNAMED)
    return read_document(os.fspath(source))


def _paths(value: object, at: FieldPath = ()) -> Iterator[FieldPath]:
    yield at
    inner = value.items() if isinstance(value, dict) else ()
    for key, each in enumerate(value) if isinstance(value, list) else inner:
        yield from _paths(each, (*at, key))


def _plain_mapping(values: Mapping[Any, object], at: str) -> dict[str, Any]:
    for key in values:
        if not isinstance(key, str):
            raise _problem(at, f"expected names of fields, got {key!r}")
    return {key: _plain(value, f"{at}.{key}".lstrip(".")) for key, value in values.items()}


def _plain(value: object, at: str) -> Any:
    """Return a value as a file would have it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case os.PathLike():
            return os.fspath(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds():g}s"
        case Mapping():
            return _plain_mapping(value, at)
        case list() | tuple():
            return [_plain(each, f"{at}[{number}]") for number, each in enumerate(value)]
    raise _problem(at, f"expected a value that a job file can hold, got {value!r}")


def _problem(at: str, message: str) -> SpecFileError:
    return SpecFileError([SpecProblem(UNNAMED, 0, 0, at, message)])
