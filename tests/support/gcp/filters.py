"""The filters of list calls: comparisons joined by AND or OR, as costopt sends them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.gcp.responses import RefusedError

_COMPARISON = re.compile(r'\(?\s*([\w.-]+)\s*=\s*"([^"]*)"\s*\)?')


def kept(items: Iterable[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """The items that meet the filter; all where it is empty."""
    if not text:
        return list(items)
    joined = " OR " if " OR " in text else " AND "
    parts = [_COMPARISON.fullmatch(part.strip().strip("()")) for part in text.split(joined)]
    if not all(parts):
        raise RefusedError(400, "invalid", f"Invalid list filter expression: {text}")
    meets = any if joined == " OR " else all
    return [
        item
        for item in items
        if meets(_value(item, part[1]) == part[2] for part in parts if part is not None)
    ]


def _value(item: Mapping[str, Any], path: str) -> object:
    value: Any = item
    while path:
        # A label's name may hold dots of its own, but ours hold none.
        name, _, path = path.partition(".")
        value = value.get(name, {}) if isinstance(value, Mapping) else None
    return value
