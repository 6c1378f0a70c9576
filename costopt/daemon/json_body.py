"""A request's body as a frozen dataclass, or every reason why it is none."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from costopt.daemon.json_schema import IntegerRange, StringPattern
from costopt.domain.errors import SpecError

Body = TypeVar("Body")


class RequestValidationError(SpecError):
    """The request is malformed; ``problems`` says where."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems), hint="see /openapi.json for what is expected")
        self.problems = tuple(problems)


def parse_body(of: type[Body], data: bytes) -> Body:
    """The object that JSON text describes. Raises BodyError."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestValidationError([f"the body is no JSON: {error}"]) from None
    if not isinstance(raw, dict):
        raise RequestValidationError(["the body is no JSON object"])
    hints = get_type_hints(of, include_extras=True)
    problems = [f"{name}: unknown field" for name in raw if name not in hints]
    values: dict[str, Any] = {}
    for field in fields(of):  # type: ignore[arg-type]
        if field.name in raw:
            try:
                values[field.name] = read_value(hints[field.name], raw[field.name])
            except ValueError as error:
                problems.append(f"{field.name}: {error}")
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{field.name}: is missing")
    if problems:
        raise RequestValidationError([_printable(problem) for problem in problems])
    return of(**values)


def read_value(hint: Any, raw: Any) -> Any:
    """A JSON value as what ``hint`` says. Raises ValueError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(read_value(arguments[0], raw), arguments[1])
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        return None if raw is None else read_value(inner, raw)
    if origin is tuple:
        if not isinstance(raw, list):
            raise ValueError("expected an array")
        return tuple(read_value(arguments[0], each) for each in raw)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, raw)
    if hint is int:
        return _whole(raw)
    if hint is bool:
        return _yes_or_no(raw)
    assert hint is str, hint
    if not isinstance(raw, str):
        raise ValueError("expected text")
    return raw


def _enum(of: type[Enum], raw: Any) -> Enum:
    for each in of:
        if each.value == raw:
            return each
    allowed = ", ".join(str(each.value) for each in of)
    raise ValueError(f"expected one of {allowed}")


def _yes_or_no(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("expected true or false")
    return raw


def _whole(raw: Any) -> int:
    """As JSON Schema has it: 2.0 is a whole number, true is none."""
    if isinstance(raw, float) and raw.is_integer():
        return int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueError("expected a whole number")
    return raw


def _limited(value: Any, said: IntegerRange | StringPattern) -> Any:
    match said:
        case IntegerRange(least, most):
            if not least <= value <= most:
                raise ValueError(f"expected {least} to {most}")
        case StringPattern(most, pattern, about):
            if len(value) > most:
                raise ValueError(f"expected at most {most} characters")
            if not re.fullmatch(pattern, value, re.DOTALL) or not _encodable(value):
                raise ValueError(f"expected {about}")
    return value


def _encodable(text: str) -> bool:
    """JSON can hold half a character, which nothing can store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
