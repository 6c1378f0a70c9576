"""Recurring jobs: the ``schedule`` section of a job file, and the jobs that it means.

Each occurrence is a job with its own name, deadline and checkpoints, whose text is that of the
recurring job without the section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from costopt.domain.errors import SpecError
from costopt.spec.cron import CronExpression
from costopt.spec.fields import FileModel, Text, parse_duration_s
from costopt.spec.yaml_document import Document, parse_document
from costopt.store.address import join_uri

SCHEDULED_AT = "SCHEDULED_AT"
"""The environment variable that holds the time of a job's occurrence, in ISO 8601."""
_STAMP = "%Y%m%dT%H%MZ"
MAX_NAME_LENGTH = 63 - len("-20261124T0200Z")
"""A recurring job's name leaves room for the time of the occurrence."""


class CatchUp(StrEnum):
    """Which of the occurrences that were missed take place once the daemon runs again."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Overlap(StrEnum):
    """What happens to an occurrence whose predecessor is not over."""

    SKIP = "skip"
    ALLOW = "allow"
    CANCEL = "cancel"


def _cron(value: object) -> object:
    if isinstance(value, str):
        try:
            CronExpression.parse(value)
        except ValueError as error:
            raise PydanticCustomError("cron", "{reason}", {"reason": str(error)}) from None
    return value


def _zone(value: object) -> object:
    if isinstance(value, str):
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise PydanticCustomError(
                "time_zone", "expected a time zone such as Europe/Berlin, got {got}", {"got": value}
            ) from None
    return value


class ScheduleSection(FileModel):
    """When a daemon runs the job again and again; each occurrence is a job of its own."""

    cron: Annotated[Text, BeforeValidator(_cron)] = Field(
        description="minute, hour, day of month, month and day of week, as in crontab(5)"
    )
    time_zone: Annotated[Text, BeforeValidator(_zone)] = Field(
        default="UTC", description="whose clocks the expression means, such as Europe/Berlin"
    )
    catch_up: Annotated[CatchUp, Field(strict=False)] = Field(
        default=CatchUp.ONE,
        description="of occurrences missed while no daemon ran: none (skip), the last (one), or "
        "all of them, which needs overlap: allow",
    )
    overlap: Annotated[Overlap, Field(strict=False)] = Field(
        default=Overlap.SKIP,
        description="of an occurrence while an earlier one is not over: skip it, allow both, or "
        "cancel the earlier one",
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job recurs, and how long after each occurrence its deadline is, if it has one."""

    cron: CronExpression
    zone: ZoneInfo
    catch_up: CatchUp
    overlap: Overlap
    deadline: timedelta | None

    def occurrences(self, after: datetime) -> Iterator[datetime]:
        """Yield the times after an aware time, in UTC, ascending."""
        return self.cron.occurrences(self.zone, after)


@lru_cache(maxsize=1024)
def parse_schedule(job_document: str) -> Schedule | None:
    """Return the schedule of a checked job's text, None if the job does not recur.

    Raise SpecError if the text cannot be read.
    """
    if "schedule" not in job_document:
        return None
    values = parse_document(job_document, "job.yaml").values
    if values.get("schedule") is None:
        return None
    deadline = values.get("deadline")
    try:
        section = ScheduleSection.model_validate(values["schedule"])
        return Schedule(
            CronExpression.parse(section.cron),
            ZoneInfo(section.time_zone),
            section.catch_up,
            section.overlap,
            None if deadline is None else timedelta(seconds=parse_duration_s(str(deadline))),
        )
    except ValueError as error:
        raise SpecError(f"its schedule cannot be read: {error}") from error


def next_occurrence(document: Document, now: datetime) -> tuple[datetime, str] | None:
    """Return when a checked job file's job occurs next, at or after ``now``, and a sentence on it;
    None if it does not recur."""
    if document.values.get("schedule") is None:
        return None
    section = ScheduleSection.model_validate(document.values["schedule"])
    times = CronExpression.parse(section.cron).occurrences(
        ZoneInfo(section.time_zone), now - timedelta(microseconds=1)
    )
    at = next(times, None)
    if at is None:
        return None
    rule = f"{section.cron!r} in {section.time_zone}"
    return at, f"schedule: the next occurrence is at {at:%Y-%m-%d %H:%MZ} ({rule})"


def occurrence_name(name: str, at: datetime) -> str:
    """Return the name of the job that is a recurring job's occurrence at a time."""
    return f"{name}-{at.astimezone(UTC):{_STAMP}}"


def is_occurrence(name: str, of: str) -> bool:
    """Whether a job's name is that of an occurrence of the recurring job ``of``."""
    return re.fullmatch(rf"{re.escape(of)}-\d{{8}}T\d{{4}}Z", name) is not None


def occurrence_document(job_document: str, at: datetime) -> str:
    """Return the text of the job that is a recurring job's occurrence at a time.

    Its checkpoints are in a folder of their own below those of the recurring job. Raise
    SpecFileError if the text cannot be read.
    """
    values: dict[str, Any] = dict(parse_document(job_document, "job.yaml").values)
    del values["schedule"]
    values["name"] = occurrence_name(values["name"], at)
    if "checkpoint" in values:  # an array has none
        said = values["checkpoint"]
        checkpoint = {"uri": said} if isinstance(said, str) else dict(said)
        checkpoint["uri"] = join_uri(checkpoint["uri"], f"{at.astimezone(UTC):{_STAMP}}")
        values["checkpoint"] = checkpoint
    at_text = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    values["env"] = {**(values.get("env") or {}), SCHEDULED_AT: at_text}
    return json.dumps(values, indent=1, ensure_ascii=False)
