"""The part that every event has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact about a job."""

    at: datetime
    job: str
