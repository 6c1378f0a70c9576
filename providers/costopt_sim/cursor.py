"""Reads one pool's record forwards in constant time."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime

from costopt.domain.history import MarketState, PoolHistory

BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class PoolCursor:
    """``at(when)`` like PoolHistory.at, but without a search while the same state holds."""

    __slots__ = ("_from", "_history", "_starts", "_state", "_until")

    def __init__(self, history: PoolHistory) -> None:
        self._history = history
        self._starts = [state.starts_at for state in history.states]
        self._from = self._until = BEGINNING_OF_TIME
        self._state: MarketState | None = None

    def at(self, when: datetime) -> MarketState | None:
        """The state in force at ``when``, or None outside the record."""
        if not self._from <= when < self._until:
            self._seek(when)
        return self._state

    def next_change_after(self, when: datetime) -> datetime:
        """The first instant after ``when`` at which a recorded state begins, else NEVER."""
        index = bisect_right(self._starts, when)
        return self._starts[index] if index < len(self._starts) else END_OF_TIME

    def _seek(self, when: datetime) -> None:
        ends_at = self._history.ends_at
        if when >= ends_at:
            self._from, self._until, self._state = ends_at, END_OF_TIME, None
            return
        index = bisect_right(self._starts, when) - 1
        following = index + 1
        self._until = self._starts[following] if following < len(self._starts) else ends_at
        if index < 0:
            self._from, self._state = BEGINNING_OF_TIME, None
        else:
            self._from, self._state = self._starts[index], self._history.states[index]
