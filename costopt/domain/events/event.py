"""The part that every event has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact about a job. ``kind`` is its name in ledgers, the API and logs."""

    kind: ClassVar[str]

    at: datetime
    job: str
