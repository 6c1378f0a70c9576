"""Lengths of time as people write them: 90m, 1d 12h, 2.5h, or a number of seconds."""

from __future__ import annotations

import re

MAX_DURATION_S = 3650 * 86400.0

_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PART = re.compile(rf"({_NUMBER.pattern}) ?(w|d|h|min|m|s)(?![a-z])\s*")
PATTERN = r"^\s*([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)? ?([wdhmsWDHMS]|[mM][iI][nN])\s*)+)\s*$"
"""What ``parse_duration_s`` accepts, as far as a regular expression (ECMA 262) can say it."""

_EXPECTED = "expected a duration such as 90m, 72h or 1d 12h, or a number of seconds"


def parse_duration_s(text: str) -> float:
    """Seconds of ``text``: parts of w, d, h, m (or min) and s, each unit at most once.

    A number alone is in seconds. Raises ValueError, whose message says what is allowed, also
    beyond ten years.
    """
    rest = text.strip().lower()
    total_s = float(rest) if _NUMBER.fullmatch(rest) else _sum_parts_s(rest)
    if total_s > MAX_DURATION_S:
        raise ValueError("expected at most ten years")
    return total_s


def _sum_parts_s(rest: str) -> float:
    if not rest:
        raise ValueError(_EXPECTED)
    total_s, seen = 0.0, set[int]()
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ValueError(_EXPECTED)
        unit_s = _SECONDS[part[2]]
        if unit_s in seen:
            raise ValueError(f"{part[2]} is given twice; {_EXPECTED}")
        seen.add(unit_s)
        total_s += float(part[1]) * unit_s
        rest = rest[part.end() :]
    return total_s
