"""A figure that says how sure it is and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

_NORMAL_P95 = 1.6448536269514722
"""The ends of a 90 % interval of a normal distribution, in standard deviations."""


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

    @classmethod
    def of_share(cls, hits: int, draws: int, source: str) -> Estimate:
        """The probability of which ``hits`` of ``draws`` simulated runs are a sample.

        Its value, (hits + ½) / (draws + 1), is never 0 or 1; the interval is Wilson's
        (doi:10.1080/01621459.1927.10502953), which ends at 0 or 1 where no run or every run hits.
        Raises ValueError without draws.
        """
        if not 0 <= hits <= draws or draws < 1:
            raise ValueError(f"{hits} of {draws} draws is not a share")
        share, spread = hits / draws, _NORMAL_P95**2 / draws
        centre = (share + spread / 2) / (1 + spread)
        half = math.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
        low = 0.0 if hits == 0 else centre - half
        high = 1.0 if hits == draws else centre + half
        return cls((hits + 0.5) / (draws + 1), low, high, Basis.MODELLED, source)

    def age_s(self, now: datetime) -> float | None:
        """Seconds since the figure was observed, or None where it does not age."""
        return None if self.observed_at is None else (now - self.observed_at).total_seconds()
