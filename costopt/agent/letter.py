"""Letters as they are read back: nodes run a job's own code, which may write anything.

This is the one way from bytes that a node wrote to a value: ``decoded_fields``, then
``decode_message``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from costopt.domain.text import untrusted_text

T = TypeVar("T")
FieldCheck = Callable[[Any], bool]
MAX_NUMBER = 10**18


def decoded_fields(data: bytes, clean: Callable[[str], str] = untrusted_text) -> Any:
    """The JSON value that ``data`` holds, with every text in it as ``clean`` returns it; None where
    it holds none, and for numbers that are not finite."""
    try:
        return _with_clean_text(json.loads(data, parse_constant=lambda _: None), clean)
    except (ValueError, RecursionError):
        return None


def decode_message(kind: Callable[..., T], fields: object) -> T | None:
    """The letter, None where there is none or a field is not what its class says.

    Numbers must be finite, and at most MOST either way. Arrays may be lists.
    """
    if not isinstance(fields, dict):
        return None
    checks = _checks(kind)
    if not all(name in checks and checks[name](value) for name, value in fields.items()):
        return None
    try:
        return kind(**fields)
    except TypeError:
        return None


def _with_clean_text(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_with_clean_text(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(name): _with_clean_text(item, clean) for name, item in value.items()}
    return value


@cache
def _checks(kind: Callable[..., Any]) -> dict[str, FieldCheck]:
    return {name: _check(hint) for name, hint in get_type_hints(kind).items()}


def _check(hint: Any) -> FieldCheck:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    arrays = [_array(get_args(option)) for option in options if get_origin(option) is tuple]
    kinds = {option for option in options if get_origin(option) is None}
    if float in kinds:
        kinds.add(int)

    def fits(value: Any) -> bool:
        if type(value) in kinds:
            return type(value) not in (int, float) or -MAX_NUMBER <= value <= MAX_NUMBER
        return any(array(value) for array in arrays)

    return fits


def _array(items: tuple[Any, ...]) -> FieldCheck:
    if items[-1] is Ellipsis:
        each = _check(items[0])
        return lambda value: isinstance(value, (list, tuple)) and all(map(each, value))
    checks = tuple(map(_check, items))
    return lambda value: (
        isinstance(value, (list, tuple))
        and len(value) == len(checks)
        and all(check(item) for check, item in zip(checks, value, strict=True))
    )
