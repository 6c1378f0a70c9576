"""Whose turn it is, where many want time and there is not enough for all."""

from __future__ import annotations

import math
from collections.abc import Collection


class FairScheduler:
    """Of those that wait, the one for which least time was taken goes first.

    Times count from the least served of those that still waited the last time, so that nobody has
    a claim from a time in which they wanted nothing. Among equals, who has waited longest.
    """

    def __init__(self) -> None:
        self._taken_s: dict[str, float] = {}
        self._since: dict[str, int] = {}
        self._count = 0

    def next(self, waiting: Collection[str]) -> str:
        """One of them."""

        def order(name: str) -> tuple[float, int, str]:
            return self._taken_s.get(name, 0.0), self._since.get(name, self._count), name

        return min(waiting, key=order)

    def charge(self, name: str, seconds: float) -> None:
        """So much time was taken for one."""
        self._taken_s[name] = self._taken_s.get(name, 0.0) + seconds

    def close(self, waiting: Collection[str]) -> None:
        """For now there is no time left for these."""
        least_s = min((self._taken_s.get(name, 0.0) for name in waiting), default=math.inf)
        self._taken_s = {n: s - least_s for n, s in self._taken_s.items() if s > least_s}
        self._since = {name: self._since.get(name, self._count) for name in waiting}
        self._count += 1
