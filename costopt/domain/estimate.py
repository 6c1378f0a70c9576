"""A figure that says how sure it is and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Basis(StrEnum):
    """How a figure came to be: every figure shown to a user carries one."""

    MEASURED = "measured"
    MODELLED = "modelled"
    LISTED = "listed"
    PRIOR = "prior"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with a 90 % interval [low, high], its basis, source and age.

    The unit is that of the field that holds the estimate. ``low == high == value`` states a
    known figure. ``observed_at`` is None only where the figure does not age (a physical model).
    """

    value: float
    low: float
    high: float
    basis: Basis
    source: str
    observed_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"estimate {self.value} outside its interval [{self.low}, {self.high}]"
            )

    @classmethod
    def exact(
        cls, value: float, basis: Basis, source: str, observed_at: datetime | None = None
    ) -> Estimate:
        """A figure without an interval, such as a list price."""
        return cls(value, value, value, basis, source, observed_at)

    def age_s(self, now: datetime) -> float | None:
        """Seconds since the figure was observed, or None where it does not age."""
        return None if self.observed_at is None else (now - self.observed_at).total_seconds()
