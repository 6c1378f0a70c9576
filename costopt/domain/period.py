"""Periods of whole days, in which a contract, a price or a commitment counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta


@dataclass(frozen=True, slots=True)
class Period:
    """From the first through the last day (UTC); None: without a beginning or an end."""

    first_day: date | None = None
    last_day: date | None = None

    @property
    def begins_at(self) -> datetime | None:
        """Return the first instant, None where it has none."""
        return None if self.first_day is None else _midnight(self.first_day)

    @property
    def ends_at(self) -> datetime | None:
        """Return the first instant after it, None where it does not end."""
        return None if self.last_day is None else _midnight(self.last_day + timedelta(days=1))

    def holds(self, at: datetime) -> bool:
        """Return whether ``at`` is within it."""
        begins_at, ends_at = self.begins_at, self.ends_at
        return (begins_at is None or begins_at <= at) and (ends_at is None or at < ends_at)

    def overlaps(self, other: Period) -> bool:
        """Return whether some day is in both."""
        return (self.first_day or date.min) <= (other.last_day or date.max) and (
            other.first_day or date.min
        ) <= (self.last_day or date.max)

    def hours_between(self, start: datetime, end: datetime) -> float:
        """Return how many hours of [start, end) it holds."""
        begin, stop = max(start, self.begins_at or start), min(end, self.ends_at or end)
        return max(0.0, (stop - begin).total_seconds() / 3600)


ALWAYS = Period()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
