"""A figure over time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise


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
        """The figure at an instant."""
        return self.values[max(0, bisect_right(self.at, when) - 1)]

    def mean(self, begin: datetime, end: datetime) -> float:
        """The time-weighted mean over [begin, end); the value at ``begin`` where they are equal."""
        if end <= begin:
            return self.value(begin)
        inner = [instant for instant in self.at if begin < instant < end]
        edges = [begin, *inner, end]
        total = sum(self.value(a) * (b - a).total_seconds() for a, b in pairwise(edges))
        return total / (end - begin).total_seconds()
