"""How messages become bytes, and how untrusted bytes become messages again.

Nodes run a job's own code, which may write anything: ``parse_fields``, then ``decode_message`` is
the only way from bytes that a node wrote to a value. Only the standard library is needed, so that
an agent starts on a node that can install nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from itertools import repeat
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from costopt.domain.text import untrusted_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Converter = Callable[[Any], Any]
MAX_NUMBER = 10**18


def encode_message(message: DataclassInstance, header: Mapping[str, object] | None = None) -> bytes:
    """Return the message as a line of JSON, after the fields of ``header``."""
    return (json.dumps({**(header or {}), **asdict(message)}) + "\n").encode()


def parse_fields(
    data: bytes | None,
    clean: Callable[[str], str] = untrusted_text,
    header: Mapping[str, object] | None = None,
) -> dict[str, Any] | None:
    """Return the JSON object in ``data``, with every text in it passed through ``clean``.

    Return None if it does not hold one, or not the fields of ``header``, which are left out.
    Numbers that are not finite are None.
    """
    try:
        value = json.loads(data or b"", parse_constant=lambda _: None)
        fields = _with_clean_text(value, clean)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    is_ours = all(fields.pop(name, None) == value for name, value in (header or {}).items())
    return fields if is_ours else None


def _with_clean_text(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_with_clean_text(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(name): _with_clean_text(item, clean) for name, item in value.items()}
    return value


def decode_message(kind: Callable[..., T], fields: object) -> T | None:
    """Return the message with these fields, None if there is none or one does not match its class.

    Numbers must be finite, and their magnitude bounded; a whole number is a float, too. A field
    that the class does not have is refused, one that is missing has its default.
    """
    try:
        message: T = _converter(kind)(fields)
    except (KeyError, TypeError, ValueError):
        return None
    return message


@cache
def _converter(hint: Any) -> Converter:
    """Return what converts a JSON value to the type, and raises an error for one of another."""
    if is_dataclass(hint):
        return _record_converter(hint)
    if isinstance(hint, UnionType):
        (known,) = (each for each in get_args(hint) if each is not type(None))
        convert = _converter(known)
        return lambda value: None if value is None else convert(value)
    if get_origin(hint) is tuple:
        return _tuple_converter(get_args(hint))
    if hint in (int, float):
        return lambda value: _number(value, hint)
    if hint in (str, bool):
        return lambda value: _exactly(value, hint)
    converter: Converter = hint  # an enumeration: its values are those that it accepts
    return converter


def _record_converter(kind: Any) -> Converter:
    # Converters of fields are found at their first use, as a class may name one that is below it.
    hints = cache(lambda: get_type_hints(kind))

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        if not isinstance(value, dict):
            raise TypeError
        known = hints()
        return kind(**{name: _converter(known[name])(item) for name, item in value.items()})

    return convert


def _tuple_converter(items: tuple[Any, ...]) -> Converter:
    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError
        kinds = repeat(items[0], len(value)) if items[-1] is Ellipsis else items
        return tuple(_converter(kind)(item) for kind, item in zip(kinds, value, strict=True))

    return convert


def _number(value: Any, kind: Any) -> Any:
    # A bool is an int to Python, and not to JSON.
    if type(value) is not int and (kind is int or type(value) is not float):
        raise TypeError
    if not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise ValueError
    return value


def _exactly(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value
