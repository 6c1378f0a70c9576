"""Cumulative dollars and energy, and progress, over time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from costopt.ledger.meter import from_milliseconds
from costopt.ledger.node import NodeAccount

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SpendPoint:
    """Micro-dollars and watt-hours until ``at``; None from where a node's energy is unknown."""

    at: datetime
    usd_micros: int
    wh: float | None


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """Work done and saved at ``at``; lost work is two points at one instant."""

    at: datetime
    done_units: float
    saved_units: float


class ProgressCurve:
    """Progress points in the order they were added, in columns: a job of months has many."""

    def __init__(self) -> None:
        self.at_us = array("q")
        self.done_units = array("d")
        self.saved_units = array("d")

    def add(self, at: datetime, done_units: float, saved_units: float) -> None:
        """Add a point; one like the last is left out."""
        point = (at - _EPOCH) // _MICROSECOND, done_units, saved_units
        if self.at_us and point == (self.at_us[-1], self.done_units[-1], self.saved_units[-1]):
            return
        self.at_us.append(point[0])
        self.done_units.append(done_units)
        self.saved_units.append(saved_units)

    def __iter__(self) -> Iterator[ProgressPoint]:
        columns = zip(self.at_us, self.done_units, self.saved_units, strict=True)
        return (
            ProgressPoint(_EPOCH + us * _MICROSECOND, done, saved) for us, done, saved in columns
        )


@dataclass(frozen=True, slots=True)
class RunCurves:
    """Both curves, ascending in time; between two points they are straight."""

    spend: tuple[SpendPoint, ...]
    progress: tuple[ProgressPoint, ...]


def spend_points(
    nodes: Iterable[NodeAccount], moves: Iterable[tuple[int, int]], now_ms: int
) -> tuple[SpendPoint, ...]:
    """The exact spend wherever its slope changes: at a launch, an end, a price, a start or stop.

    ``moves`` are (milliseconds, micro-dollars) of what is paid at once: two points at one instant.
    """
    ordered = sorted(nodes, key=lambda node: node.launched_ms)
    paid: dict[int, int] = {}
    for ms, micros in moves:
        paid[ms] = paid.get(ms, 0) + micros
    instants = sorted({ms for node in ordered for ms in _knots(node, now_ms)} | paid.keys())
    points: list[SpendPoint] = []
    alive: list[NodeAccount] = []
    closed_micros = closed_uwh = begun = 0
    unknown = False
    for ms in instants:
        while begun < len(ordered) and ordered[begun].launched_ms <= ms:
            alive.append(ordered[begun])
            begun += 1
        micros = sum(node.usd_micros(ms) for node in alive)
        uwh = sum(sum(node.uwh(ms)) for node in alive)
        unknown = unknown or any(node.unpowered_ms(ms) for node in alive)
        wh = None if unknown else (closed_uwh + uwh) / 1e6
        points.append(SpendPoint(from_milliseconds(ms), closed_micros + micros, wh))
        if ms in paid:
            closed_micros += paid[ms]
            points.append(replace(points[-1], usd_micros=closed_micros + micros))
        for node in [node for node in alive if node.until_ms(now_ms) <= ms]:
            closed_micros += node.usd_micros(ms)
            closed_uwh += sum(node.uwh(ms))
            alive.remove(node)
    return tuple(points)


def _knots(node: NodeAccount, now_ms: int) -> Iterable[int]:
    until = node.until_ms(now_ms)
    yield node.launched_ms
    yield until
    yield from (ms for ms in node.cost.starts_ms if ms < until)
    for start, end in node.busy.spans_until(until):
        yield start
        yield end
