"""Estimates, which state their interval, basis, source and age, and figures over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

_NORMAL_P95 = 1.6448536269514722
"""The ends of a 90 % interval of a normal distribution, in standard deviations."""
ONE_SIDED = 0.05
"""The probability that a one-sided 95 % bound is wrong."""


class Basis(StrEnum):
    """How a figure was obtained: every figure shown to a user carries one."""

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
        """Return a figure without an interval, such as a list price."""
        return cls(value, value, value, basis, source, observed_at)

    @classmethod
    def of_share(cls, hits: int, draws: int, source: str) -> Estimate:
        """Return the probability of which ``hits`` of ``draws`` simulated runs are a sample.

        Its value, (hits + ½) / (draws + 1), is never 0 or 1; the interval is Wilson's
        (doi:10.1080/01621459.1927.10502953). Where every run or none hits it ends at 1 or 0, and
        its other end is the exact 95 % bound, about 3 / draws away (the rule of three, of which
        Wilson's falls short). Raises ValueError without draws.
        """
        if not 0 <= hits <= draws or draws < 1:
            raise ValueError(f"{hits} of {draws} draws is not a share")
        share, spread = hits / draws, _NORMAL_P95**2 / draws
        centre = (share + spread / 2) / (1 + spread)
        half = math.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
        low, high = centre - half, centre + half
        surely = ONE_SIDED ** (1 / draws)
        if hits == 0:
            low, high = 0.0, 1 - surely
        elif hits == draws:
            low, high = surely, 1.0
        return cls((hits + 0.5) / (draws + 1), low, high, Basis.MODELLED, source)

    def is_at_least(self, asked: float) -> bool:
        """Return whether a share is as high as asked; one of all runs is, whatever their number."""
        return self.value >= asked or self.high >= 1.0

    def age_s(self, now: datetime) -> float | None:
        """Return the seconds since the figure was observed, or None where it does not age."""
        return None if self.observed_at is None else (now - self.observed_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Series:
    """A figure that is constant from each instant to the next: ``values[i]`` from ``at[i]`` on.

    Before the first instant the first value holds, after the last one the last. The unit is that of
    the field that holds the series. Raises ValueError unless the instants are aware, ascending and
    as many as the values, which are at least one.
    """

    at: tuple[datetime, ...]
    values: tuple[float, ...]
    source: str

    def __post_init__(self) -> None:
        if not self.values or len(self.at) != len(self.values):
            raise ValueError(f"a series has {len(self.at)} instants and {len(self.values)} values")
        if any(instant.tzinfo is None for instant in self.at):
            raise ValueError("the instants of a series must be aware times")
        if any(a >= b for a, b in pairwise(self.at)):
            raise ValueError("the instants of a series must ascend")

    def value(self, when: datetime) -> float:
        """Return the figure at an instant."""
        return self.values[max(0, bisect_right(self.at, when) - 1)]

    def mean(self, begin: datetime, end: datetime) -> float:
        """Return the time-weighted mean over [begin, end); the value at ``begin`` if equal."""
        if end <= begin:
            return self.value(begin)
        inner = [instant for instant in self.at if begin < instant < end]
        edges = [begin, *inner, end]
        total = sum(self.value(a) * (b - a).total_seconds() for a, b in pairwise(edges))
        return total / (end - begin).total_seconds()


def sum_of_known(figures: Iterable[float | None]) -> float | None:
    """Return the sum; None where any figure is unknown."""
    total: float = 0
    for figure in figures:
        if figure is None:
            return None
        total += figure
    return total
