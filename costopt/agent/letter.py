"""Letters as they are read back: nodes run a job's own code, which may write anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read_letter(kind: Callable[..., T], fields: dict[str, Any] | None) -> T | None:
    """The letter, None where there is none or a field is not what its class says.

    Numbers must be finite. Arrays may be lists.
    """
    if fields is None:
        return None
    hints = _hints(kind)
    if not all(name in hints and _fits(hints[name], value) for name, value in fields.items()):
        return None
    try:
        return kind(**fields)
    except TypeError:
        return None


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(hint: Any, value: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(option, value) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple)) and _fit(get_args(hint), value)
    if hint is NoneType:
        return value is None
    if hint in (int, float):
        number = isinstance(value, (int, hint)) and not isinstance(value, bool)
        return number and -math.inf < value < math.inf
    return isinstance(value, hint)


def _fit(hints: tuple[Any, ...], values: list[Any] | tuple[Any, ...]) -> bool:
    if hints[-1] is Ellipsis:
        return all(_fits(hints[0], value) for value in values)
    return len(hints) == len(values) and all(map(_fits, hints, values))
