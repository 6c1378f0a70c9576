"""Times in job files: an instant, an hour of a day in a time zone, or a duration from another time.

An hour without a zone is one of this machine's time zone. What is sent to another machine
names the instant: see ``name_instants``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from costopt.spec.fields import parse_duration_s

_INSTANT_EXPECTED = "expected a time in ISO 8601 with its zone, such as 2026-05-01T08:00:00Z"


def parse_instant(text: str) -> datetime:
    """The instant in UTC. Raises ValueError, also where the zone is missing."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(_INSTANT_EXPECTED) from None
    if when.tzinfo is None:
        raise ValueError(f"the time zone is missing; {_INSTANT_EXPECTED}")
    try:
        return when.astimezone(UTC)
    except OverflowError:
        raise ValueError(_INSTANT_EXPECTED) from None


INSTANT_PATTERN = r"^\s*[+-]?[0-9]{4,}-"
"""How a time of its own begins; anything else is counted."""


WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LOCAL_PATTERN = (
    r"^\s*([0-9]{4}-[0-9]{2}-[0-9]{2}|(?:[mM]on|[tT]ue|[wW]ed|[tT]hu|[fF]ri|[sS]at|[sS]un)[a-z]{0,6})"
    r"[ T]+([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(?: ([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*))?\s*$"
)
"""A day, or the next one of this name, and an hour of a zone of the IANA database."""


def moment(text: str, origin: datetime) -> datetime:
    """A time, a weekday's hour, or a duration from ``origin``, in UTC. Raises ValueError.

    Without a zone an hour is one of this machine's time zone.
    """
    local = re.match(LOCAL_PATTERN, text)
    if local is not None and local[3] not in ("Z", "z"):
        return _local_moment(local[1], local[2], local[3], origin)
    if re.match(INSTANT_PATTERN, text):
        return parse_instant(text)
    try:
        return origin + timedelta(seconds=parse_duration_s(text))
    except OverflowError:
        raise ValueError("expected a time before the year 10000") from None


def _local_moment(day: str, clock: str, zone_name: str | None, origin: datetime) -> datetime:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = None if zone_name is None else ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {zone_name!r}; expected one such as Europe/Berlin"
        ) from None
    try:
        # A naive time, and a zone of None in astimezone, are the machine's.
        hour, minute, second = map(int, f"{clock}:0".split(":")[:3])
        at = time(hour, minute, second, tzinfo=zone)
        if day[0].isdigit():
            return datetime.combine(date.fromisoformat(day), at).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(_INSTANT_EXPECTED) from None
    today = origin.astimezone(zone).date()
    ahead = (WEEKDAYS.index(day[:3].lower()) - today.weekday()) % 7
    found = datetime.combine(today + timedelta(days=ahead), at)
    # Today's hour may have passed already: the same day of the next week is meant then.
    is_ahead = found.astimezone(UTC) > origin
    return (found if is_ahead else found + timedelta(days=7)).astimezone(UTC)


def has_no_zone(text: str) -> bool:
    """Return whether the text is an hour of a day without its time zone."""
    local = re.match(LOCAL_PATTERN, text)
    return local is not None and local[3] is None


def is_duration(text: str) -> bool:
    """Return whether the text is a duration."""
    try:
        parse_duration_s(text)
    except ValueError:
        return False
    return True


def zone_note(text: str, at: datetime) -> str:
    """Return which instant an hour without a zone is, in words."""
    return f"{text!r} is {at:%Y-%m-%d %H:%MZ} in this machine's time zone, {at.astimezone():%Z}"


MOMENT_FIELDS = ("start", "deadline")


def zoneless_fields(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a job file that hold an hour without its zone, and their texts."""
    for name in MOMENT_FIELDS:
        text = values.get(name)
        if isinstance(text, str) and has_no_zone(text):
            yield name, text


def name_instants(job_text: str, path: str, now: datetime) -> str:
    """Return the text of a checked job file with the instants of hours that name no zone.

    All else stays as it is. For a machine that may be in another time zone.
    """
    from costopt.spec.yaml_document import compose_document, parse_document

    values = parse_document(job_text, path).values
    start_at = moment(str(values.get("start", "0s")), now)
    root = compose_document(path, job_text)
    assert root is not None
    nodes = {key.value: node for key, node in root.value}
    for name, text in sorted(
        zoneless_fields(values), key=lambda each: -nodes[each[0]].start_mark.index
    ):
        at = moment(text, now if name == "start" else start_at)
        begin, end = nodes[name].start_mark.index, nodes[name].end_mark.index
        job_text = f'{job_text[:begin]}"{at:%Y-%m-%dT%H:%M:%SZ}"{job_text[end:]}'
    return job_text
