"""The recorded or generated past of a market, as runs between changes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from costopt.domain.market import Pool


@dataclass(frozen=True, slots=True)
class MarketState:
    """What a pool was like from ``starts_at`` until the next state.

    ``nodes_available`` is how many nodes the pool can carry in total (None: not observed);
    ``price_usd_per_hour`` is for one node (None: not observed).
    """

    starts_at: datetime
    nodes_available: int | None
    price_usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """States of one pool in ascending order; the last one holds until ``ends_at``.

    Adjacent states differ. A gap in the record is a state whose fields are None, never a guess.
    """

    pool: Pool
    states: tuple[MarketState, ...]
    ends_at: datetime

    def __post_init__(self) -> None:
        if not self.states:
            raise ValueError(f"{self.pool}: an empty history")
        starts = [state.starts_at for state in self.states]
        if any(b <= a for a, b in pairwise(starts)):
            raise ValueError(f"{self.pool}: states are not in ascending order")
        if self.ends_at <= starts[-1]:
            raise ValueError(f"{self.pool}: ends before its last state")

    @property
    def starts_at(self) -> datetime:
        """The first recorded instant."""
        return self.states[0].starts_at

    def at(self, when: datetime) -> MarketState | None:
        """The state in force at ``when``, or None outside the record."""
        if when >= self.ends_at:
            return None
        index = bisect_right(self.states, when, key=lambda state: state.starts_at) - 1
        return self.states[index] if index >= 0 else None

    def between(self, start: datetime, end: datetime) -> Iterator[MarketState]:
        """States that begin in (start, end], in order."""
        first = bisect_right(self.states, start, key=lambda state: state.starts_at)
        for state in self.states[first:]:
            if state.starts_at > end:
                return
            yield state


@dataclass(frozen=True, slots=True)
class MarketHistory:
    """Histories of many pools. ``tick_s`` is the grid of the record, None for event data.

    On a grid, what runs at a grid point survives until the next one.
    """

    name: str
    pools: Mapping[Pool, PoolHistory]
    tick_s: float | None
    source: str

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError(f"market {self.name!r} holds no pool")

    @property
    def starts_at(self) -> datetime:
        """The first instant at which every pool is recorded."""
        return max(history.starts_at for history in self.pools.values())

    @property
    def first_priced_at(self) -> datetime:
        """The first instant from its start on at which the most pools have a price.

        A record may begin before prices are known, and pools may join it later.
        """
        begin, end = self.starts_at, self.ends_at
        changes: Counter[datetime] = Counter()
        for history in self.pools.values():
            before = False
            for state in history.states:
                if state.starts_at >= end:
                    break
                priced = state.price_usd_per_hour is not None
                changes[max(begin, state.starts_at)] += priced - before
                before = priced
        count = most = 0
        best_at = begin
        for at in sorted(changes):
            count += changes[at]
            if count > most:
                most, best_at = count, at
        return best_at

    @property
    def ends_at(self) -> datetime:
        """The instant after which no pool is recorded any more."""
        return min(history.ends_at for history in self.pools.values())
