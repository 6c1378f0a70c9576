"""Meters of one node: running totals of its cost, its busy time and its power.

Instants are whole milliseconds since the epoch. Both meters answer at any instant and in constant
time at the present one; an end that is learned late, before the last change, is looked up.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

MS_PER_HOUR = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def to_milliseconds(at: datetime) -> int:
    """Return whole milliseconds since the epoch."""
    return (at - _EPOCH) // _MS


def from_milliseconds(ms: int) -> datetime:
    """Return the aware UTC time of whole milliseconds since the epoch."""
    return _EPOCH + ms * _MS


class CostMeter:
    """Micro-dollars of a node: per price segment, micros_per_hour × ms // 3,600,000."""

    __slots__ = ("_closed_micros", "_prices", "_starts")

    def __init__(self, launched_ms: int, micros_per_hour: int) -> None:
        self._starts = [launched_ms]
        self._prices = [micros_per_hour]
        self._closed_micros = 0

    @property
    def micros_per_hour(self) -> int:
        """Return the newest price."""
        return self._prices[-1]

    @property
    def starts_ms(self) -> tuple[int, ...]:
        """Return when each price began, ascending."""
        return tuple(self._starts)

    def micros_per_hour_at(self, ms: int) -> int:
        """Return the price in force at ``ms``; before the launch, the first."""
        return self._prices[max(0, bisect_right(self._starts, ms) - 1)]

    def change(self, at_ms: int, micros_per_hour: int) -> None:
        """Set the price from ``at_ms`` on; a change before the node's launch is ignored."""
        if at_ms < self._starts[0]:
            return
        if at_ms >= self._starts[-1]:
            self._closed_micros += self._segment(len(self._starts) - 1, at_ms)
            self._starts.append(at_ms)
            self._prices.append(micros_per_hour)
            return
        place = bisect_right(self._starts, at_ms)
        self._starts.insert(place, at_ms)
        self._prices.insert(place, micros_per_hour)
        self._closed_micros = self._sum(self._starts[-1])

    def micros_until(self, ms: int) -> int:
        """Return the cost from the launch until ``ms``."""
        if ms >= self._starts[-1]:
            return self._closed_micros + self._segment(len(self._starts) - 1, ms)
        return self._sum(ms)

    def _segment(self, index: int, until_ms: int) -> int:
        return self._prices[index] * (until_ms - self._starts[index]) // MS_PER_HOUR

    def _sum(self, until_ms: int) -> int:
        total = 0
        for index, start in enumerate(self._starts):
            if start >= until_ms:
                break
            last = index + 1 == len(self._starts)
            end = until_ms if last else min(until_ms, self._starts[index + 1])
            total += self._segment(index, end)
        return total


class BusyMeter:
    """The stretches of time for which a node trained."""

    __slots__ = ("_closed_ms", "_since", "_spans")

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._closed_ms = 0
        self._since: int | None = None

    def start(self, at_ms: int) -> None:
        """Record that the node trains from now on; it may already."""
        if self._since is None:
            self._since = at_ms

    def stop(self, at_ms: int) -> None:
        """Record that the node stops training; it may have already."""
        if self._since is None:
            return
        if at_ms > self._since:
            self._spans.append((self._since, at_ms))
            self._closed_ms += at_ms - self._since
        self._since = None

    def spans_until(self, ms: int) -> tuple[tuple[int, int], ...]:
        """Return the stretches before ``ms``, the last one cut off there."""
        spans = self._spans if self._since is None else [*self._spans, (self._since, ms)]
        return tuple((start, min(end, ms)) for start, end in spans if start < ms)

    def ms_until(self, ms: int) -> int:
        """Return how long the node trained before ``ms``."""
        if self._spans and ms < self._spans[-1][1]:
            return sum(end - start for start, end in self.spans_until(ms))
        running = 0 if self._since is None else max(0, ms - self._since)
        return self._closed_ms + running


class PowerMeter:
    """Watts that a node draws while it trains; they change with the power limit of its GPUs."""

    __slots__ = ("_starts", "_watts")

    def __init__(self, launched_ms: int, busy_w: float) -> None:
        self._starts = [launched_ms]
        self._watts = [busy_w]

    def change(self, at_ms: int, busy_w: float) -> None:
        """Set what the node draws while it trains from ``at_ms`` on. Changes come in order."""
        self._starts.append(max(at_ms, self._starts[-1]))
        self._watts.append(busy_w)

    def busy_w_ms(self, busy: BusyMeter, until_ms: int) -> float:
        """Return watts times milliseconds of training before ``until_ms``."""
        if len(self._watts) == 1:
            return self._watts[0] * busy.ms_until(until_ms)
        ends = [*self._starts[1:], until_ms]
        total = 0.0
        trained_ms = 0
        for busy_w, end_ms in zip(self._watts, ends, strict=True):
            before_ms = trained_ms
            trained_ms = busy.ms_until(min(end_ms, until_ms))
            total += busy_w * (trained_ms - before_ms)
        return total


class EnergyMeter:
    """Stretches of time for which a node's energy was measured: micro-watt-hours at its plug."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: dict[int, tuple[int, int]] = {}

    def set(self, from_ms: int, until_ms: int, uwh: int) -> None:
        """Set a total, replacing an earlier one from the same instant; stretches do not overlap."""
        earlier = [end for start, (end, _) in self._stretches.items() if start < from_ms]
        from_ms = max(from_ms, *earlier) if earlier else from_ms
        if until_ms > from_ms:
            self._stretches[from_ms] = until_ms, uwh

    def stretches(self) -> tuple[tuple[int, int, int], ...]:
        """Return (from, until, micro-watt-hours), ascending."""
        if not self._stretches:
            return ()
        return tuple((start, end, uwh) for start, (end, uwh) in sorted(self._stretches.items()))
