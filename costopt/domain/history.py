"""The recorded or generated past of a market, as runs between changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from costopt.domain.market import CapacityType, Pool


@dataclass(frozen=True, slots=True)
class MarketState:
    """The price and capacity of a pool from ``starts_at`` until the next state.

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
            raise ValueError(f"{self.pool}: the history is empty")
        starts = [state.starts_at for state in self.states]
        if any(b <= a for a, b in pairwise(starts)):
            raise ValueError(f"{self.pool}: the states are not in ascending order")
        if self.ends_at <= starts[-1]:
            raise ValueError(f"{self.pool}: the history ends before its last state")

    @property
    def starts_at(self) -> datetime:
        """Return the first recorded instant."""
        return self.states[0].starts_at

    def at(self, when: datetime) -> MarketState | None:
        """Return the state in force at ``when``, or None outside the record."""
        if when >= self.ends_at:
            return None
        index = bisect_right(self.states, when, key=lambda state: state.starts_at) - 1
        return self.states[index] if index >= 0 else None

    def between(self, start: datetime, end: datetime) -> Iterator[MarketState]:
        """Yield the states that begin in (start, end], in order."""
        first = bisect_right(self.states, start, key=lambda state: state.starts_at)
        for state in self.states[first:]:
            if state.starts_at > end:
                return
            yield state


@dataclass(frozen=True, slots=True)
class MarketHistory:
    """Histories of many pools. ``tick_s`` is the grid of the record, None for event data.

    On a grid, a node that runs at a grid point survives until the next one.
    """

    name: str
    pools: Mapping[Pool, PoolHistory]
    tick_s: float | None
    source: str

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError(f"market {self.name!r} holds no pools")

    @property
    def starts_at(self) -> datetime:
        """Return the first instant at which every pool is recorded."""
        return max(history.starts_at for history in self.pools.values())

    @property
    def first_priced_at(self) -> datetime:
        """Return the first instant by which each capacity type that is ever priced has had a price
        in some pool; the record's start where none has one.

        A record may begin before the prices of spot are known, and a plan of that instant would
        choose on-demand because there are no others. Pools that join later do not delay it.
        """
        begin, end = self.starts_at, self.ends_at
        first: dict[CapacityType, datetime] = {}
        for pool, history in self.pools.items():
            for state in history.states:
                if state.price_usd_per_hour is not None and state.starts_at < end:
                    at, kind = max(begin, state.starts_at), pool.capacity_type
                    first[kind] = min(at, first.get(kind, at))
                    break
        return max(first.values(), default=begin)

    def until(self, when: datetime) -> MarketHistory:
        """Return what was recorded by ``when``, at which every pool is recorded."""
        end = when + timedelta(seconds=1)
        pools = {
            pool: PoolHistory(pool, tuple(s for s in h.states if s.starts_at <= when), end)
            for pool, h in self.pools.items()
        }
        return replace(self, pools=pools)

    @property
    def ends_at(self) -> datetime:
        """Return the instant after which no pool is recorded."""
        return min(history.ends_at for history in self.pools.values())
