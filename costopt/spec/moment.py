"""A time of its own, or one that is counted from another."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from costopt.spec.duration import parse_duration_s
from costopt.spec.instant import parse_instant

INSTANT_PATTERN = r"^\s*[+-]?[0-9]{4,}-"
"""How a time of its own begins; anything else is counted."""


def moment(text: str, origin: datetime) -> datetime:
    """An ISO 8601 time with its zone, or a duration from ``origin``. Raises ValueError."""
    if re.match(INSTANT_PATTERN, text):
        return parse_instant(text)
    try:
        return origin + timedelta(seconds=parse_duration_s(text))
    except OverflowError:
        raise ValueError("expected a time before the year 10000") from None
