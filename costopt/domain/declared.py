"""How the domain declares what users may write: the values that a field takes, and what it means.

``costopt.spec`` makes schemas and checks of files from these declarations. They need nothing but
the standard library, as nodes import parts of the domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any


class ValueKind(StrEnum):
    """Which values a field takes, where its type alone does not say it.

    A NAME is of letters, digits, dots, dashes and underscores; a DURATION is in seconds, and in
    files under the field's name without ``_s``, in any unit of time.
    """

    POSITIVE = "positive"
    DOLLARS = "dollars"
    NOT_NEGATIVE = "not negative"
    SHARE = "share"
    COUNT = "count"
    LARGE_COUNT = "large count"
    NAME = "name"
    TEXT = "text"
    DURATION = "duration"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number: greater than, at least, less than, at most."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None


@dataclass(frozen=True, slots=True)
class Length:
    """How many items a list that is written may have."""

    min: int = 0
    max: int | None = None


Positive = Annotated[float, ValueKind.POSITIVE]
Dollars = Annotated[float, ValueKind.DOLLARS]
NotNegative = Annotated[float, ValueKind.NOT_NEGATIVE]
Share = Annotated[float, ValueKind.SHARE]
Count = Annotated[int, ValueKind.COUNT]
LargeCount = Annotated[int, ValueKind.LARGE_COUNT]
Name = Annotated[str, ValueKind.NAME]
Text = Annotated[str, ValueKind.TEXT]
Duration = Annotated[float, ValueKind.DURATION]

DESCRIPTION = "description"


def described(text: str) -> Mapping[str, Any]:
    """Return the metadata of a field that users may write."""
    return {DESCRIPTION: text}
