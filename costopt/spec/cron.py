"""Cron expressions: the minutes, in local time, at which something recurs.

The five fields of crontab(5): minute, hour, day of month, month, day of week (0 and 7 are Sunday),
each ``*``, a value, a range ``a-b``, a step ``*/n`` or ``a-b/n``, or a list of these; months and
days of the week also by the first three letters of their English names. Where both days are
restricted, a day that matches either is taken, as crontab(5) has it.

A minute that the clocks skip in spring takes place as much later as they are moved; one that they
repeat in autumn takes place once, the first time. Where the hour begins with ``*``, the expression
means every so many hours rather than a time of the day: then skipped minutes do not take place, and
repeated ones twice.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_WEEKDAYS = {name.lower(): (day + 1) % 7 for day, name in enumerate(calendar.day_abbr)}
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _CronField:
    label: str
    low: int
    high: int
    names: dict[str, int]

    def parse(self, text: str) -> frozenset[int]:
        """Return the values that the field allows. Raise ValueError."""
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, part: str) -> range:
        span, slash, step_text = part.partition("/")
        step = self._number(step_text, part) if slash else 1
        if step < 1:
            raise ValueError(f"the step of {part!r} is below 1 in the {self.label}")
        if span == "*":
            return range(self.low, self.high + 1, step)
        first_text, dash, last_text = span.partition("-")
        first = self._value(first_text, part)
        last = self._value(last_text, part) if dash else self.high if slash else first
        if last < first:
            raise ValueError(f"{part!r} ends before it begins in the {self.label}")
        return range(first, last + 1, step)

    def _value(self, text: str, part: str) -> int:
        value = self.names.get(text.lower())
        if value is None:
            value = self._number(text, part)
        if not self.low <= value <= self.high:
            raise ValueError(f"{part!r} is not within {self.low}-{self.high} in the {self.label}")
        return value

    def _number(self, text: str, part: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise ValueError(f"{part!r} cannot be read as a {self.label}")
        return int(text)


_FIELDS = (
    _CronField("minute", 0, 59, {}),
    _CronField("hour", 0, 23, {}),
    _CronField("day of month", 1, 31, {}),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed cron expression."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    every_hours: bool

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Return the expression of a text. Raise ValueError, also if it never occurs."""
        words = text.split()
        if len(words) != len(_FIELDS):
            raise ValueError(
                f"expected five fields (minute, hour, day of month, month, day of week), "
                f"got {len(words)}"
            )
        minutes, hours, days, months, weekdays = (
            field.parse(word) for field, word in zip(_FIELDS, words, strict=True)
        )
        either_day = not words[2].startswith("*") and not words[4].startswith("*")
        longest = max(calendar.monthrange(2024, month)[1] for month in months)
        if min(days) > longest and not either_day:
            raise ValueError("no month that it names has such a day")
        return cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            days,
            months,
            frozenset(day % 7 for day in weekdays),
            either_day,
            words[1].startswith("*"),
        )

    def occurrences(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """Yield all times (UTC) after an aware time, ascending, to the end of the calendar."""
        day = after.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        last = after
        try:
            while True:
                if self._has_day(day):
                    for at in sorted(set(self._times(day, zone))):
                        if at > last:
                            yield at
                            last = at
                day += _DAY
        except OverflowError:
            return

    def _has_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday

    def _times(self, day: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                local = day.replace(hour=hour, minute=minute, tzinfo=zone)
                at = local.astimezone(UTC)
                if not self.every_hours:
                    yield at
                elif at.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                    yield at
                    yield local.replace(fold=1).astimezone(UTC)
