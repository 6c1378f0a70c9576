"""Golden files: what is stored, sent or typed, one JSON file per area in tests/golden.

Where a change is meant, write the files again and review their diff:

    COSTOPT_GOLDEN=write pytest tests/golden

Files are keyed by what users and other programs see, never by the names of Python classes alone,
so that a rename of Python names leaves them byte for byte as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

WIDTH = 100
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def check(area: str, found: Mapping[str, Any]) -> None:
    """Assert that ``found`` is what AREA.json holds; with COSTOPT_GOLDEN=write, write it there."""
    path = Path(__file__).parents[1] / "golden" / f"{area}.json"
    text = pretty(json.loads(json.dumps(found))) + "\n"
    if os.environ.get("COSTOPT_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see {__name__}"


def pretty(value: Any, indent: int = 0, key: str = "") -> str:
    """JSON with sorted keys, in which everything that fits in a line is on one."""
    head = f"{' ' * indent}{key}"
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(head) + len(line) < WIDTH or not value or not isinstance(value, (dict, list)):
        return head + line
    if isinstance(value, list):
        inner, (first, last) = [pretty(item, indent + 1) for item in value], "[]"
    else:
        keys = sorted(value)
        inner = [pretty(value[each], indent + 1, f"{json.dumps(each)}: ") for each in keys]
        first, last = "{}"
    return f"{head}{first}\n" + ",\n".join(inner) + f"\n{' ' * indent}{last}"


def example(hint: Any) -> Any:
    """A value of the type: a dataclass has a value in every field, also in those with a default."""
    if is_dataclass(hint):
        assert isinstance(hint, type)
        hints = get_type_hints(hint)
        return hint(**{each.name: example(hints[each.name]) for each in fields(hint)})
    if get_origin(hint) in (Union, UnionType):
        return example(next(arg for arg in get_args(hint) if arg is not NoneType))
    if get_origin(hint) is tuple:
        return tuple(example(item) for item in get_args(hint) if item is not Ellipsis)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return hint(*map(example, get_type_hints(hint).values()))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return {bool: True, int: 2, float: 1.5, str: "text", datetime: AT, Path: Path("path")}[hint]
