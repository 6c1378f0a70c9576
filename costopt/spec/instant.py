"""Points in time as people write them: ISO 8601 with a time zone."""

from __future__ import annotations

from datetime import UTC, datetime

_EXPECTED = "expected a time in ISO 8601 with its zone, such as 2026-05-01T08:00:00Z"


def parse_instant(text: str) -> datetime:
    """The instant in UTC. Raises ValueError, also where the zone is missing."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if when.tzinfo is None:
        raise ValueError(f"the time zone is missing; {_EXPECTED}")
    try:
        return when.astimezone(UTC)
    except OverflowError:
        raise ValueError(_EXPECTED) from None
