"""Days in account files, and sections that hold from one through another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from costopt.domain.period import Period
from costopt.spec.fields import FileModel, Name, Text
from costopt.spec.yaml_document import VALUE_ERROR, Document, SpecProblem

DAY_PATTERN = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"


def _day(value: object) -> object:
    """Return the date of a text; what is not one is refused with a sentence."""
    if not isinstance(value, str):
        return value
    try:
        if re.fullmatch(DAY_PATTERN, value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError("expected a day such as 2026-01-31")


Day = Annotated[
    date,
    BeforeValidator(_day),
    WithJsonSchema({"type": "string", "format": "date", "pattern": DAY_PATTERN}),
]


class PeriodSection(FileModel):
    """Terms with a provider, from a day through another."""

    name: Name = Field(description="as plans and reports show it")
    provider: Text = Field(description="the cloud, as in the catalogue")
    first_day: Day | None = Field(
        default=None, description="from this day on (UTC); default: no start"
    )
    last_day: Day | None = Field(default=None, description="through this day; default: no end")

    def period(self) -> Period:
        """Return it as the domain has it."""
        return Period(self.first_day, self.last_day)


def period_problems(
    document: Document, at: tuple[str, int], entry: PeriodSection
) -> Iterator[SpecProblem]:
    """Yield a problem where the period ends before it begins."""
    if entry.first_day and entry.last_day and entry.last_day < entry.first_day:
        message = f"ends before its first_day, {entry.first_day}"
        yield document.problem((*at, "last_day"), message, code=VALUE_ERROR)
