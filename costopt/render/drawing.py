"""A chart as data: two axes, and marks in the values of these axes.

It says nothing of how it is drawn: ``costopt.render.svg`` writes it. Colors are names of the
page's CSS variables, so that one drawing serves the light and the dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

WIDE_PX = 960
NARROW_PX = 360

FINISH_COLOURS = ("finish1", "finish2", "finish3", "finish4", "finish5")
"""From the earliest to the latest, each stronger than the one before."""

POOL_COLOURS = ("pool1", "pool2", "pool3", "pool4", "pool5", "pool6")
LINE_COLOURS = (*POOL_COLOURS, "firm", "ink")

DASHED = (7.0, 5.0)
TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``low``, at the left or the bottom, to ``high``; ``low`` may be the greater one.

    A value outside is not drawn. ``grid`` draws a line across the drawing at each tick.
    """

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()
    title: str = ""
    grid: bool = False
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies between low, 0, and high, 1."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high != low else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Straight from point to point; ``title`` shows under the pointer."""

    points: tuple[Point, ...]
    colour: str
    width_px: float = 2.4
    dashes_px: tuple[float, ...] = ()
    offset_px: float = 0.0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """What lies between the points and the bottom of the drawing."""

    points: tuple[Point, ...]
    colour: str
    opacity: float


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle from corner to corner."""

    start: Point
    end: Point
    colour: str
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A mark at a point, so many pixels wide; ``title`` shows under the pointer."""

    kind: Literal["dot", "ring", "diamond", "cross", "edge"]
    at: Point
    colour: str
    size_px: float
    opacity: float = 1.0
    title: str = ""


@dataclass(frozen=True, slots=True)
class VerticalLine:
    """A line from the bottom to the top."""

    x: float
    colour: str
    width_px: float = 1.5


@dataclass(frozen=True, slots=True)
class Text:
    """Words whose ``anchor`` is at a point, moved by some pixels to the right and down.

    ``has_leader``: a thin line leads from the point to them.
    """

    text: str
    at: Point
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"
    offset_px: Point = (0.0, 0.0)
    size_px: float = 12.0
    is_bold: bool = False
    has_leader: bool = False


Mark = Line | Area | Rectangle | Symbol | VerticalLine | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """``left_px`` is the room for the labels of the vertical axis.

    The margins are alike in every drawing, so that the times of several line up.
    """

    width_px: int
    height_px: float
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    left_px: float = 56.0
    right_px: float = 14.0
    top_px: float = 22.0
    bottom_px: float = 40.0

    def place(self, point: Point) -> Point:
        """Return where a point is in pixels, from the left and from the top."""
        x, y = point
        width = self.width_px - self.left_px - self.right_px
        height = self.height_px - self.top_px - self.bottom_px
        return (
            self.left_px + width * self.x.share(x),
            self.top_px + height * (1.0 - self.y.share(y)),
        )


def make_drawing(
    narrow: bool, height_px: float, x: Axis, y: Axis, marks: Sequence[Mark], left_px: float = 56.0
) -> Drawing:
    """Return a drawing for a phone or for a wide page."""
    if narrow:
        return Drawing(NARROW_PX, height_px, x, y, tuple(marks), min(left_px, 48.0))
    return Drawing(WIDE_PX, height_px, x, y, tuple(marks), left_px)


def value_axis(high: float, text: Callable[[float], str], most: int, *, low: float = 0.0) -> Axis:
    """Return a vertical axis with a grid at no more than so many steps of round values."""
    high = max(high, low + 1e-9)
    ticks = tuple((value, text(value)) for value in round_values(low, high, most))
    return Axis(low, high, ticks, grid=True)


def hours_axis(high: float) -> Axis:
    """Return an axis of the hours since the start."""
    high = max(high, 1e-9)
    ticks = tuple((hour, f"{hour:g}") for hour in round_values(0.0, high, 5))
    return Axis(0.0, high, ticks, "hours since the start")


def padded_axis(
    values: Sequence[float], text: Callable[[float], str], most: int, pad: float
) -> Axis:
    """Return an axis on which the values have room, this share of their distance, at both ends."""
    low, high = min(values), max(values)
    room = pad * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - room, high + room
    ticks = tuple((value, text(value)) for value in round_values(low, high, most))
    return Axis(low, high, ticks)


def round_values(low: float, high: float, most: int) -> Iterator[float]:
    """Yield the multiples, between two values, of the least round step that makes no more than so
    many of their distance."""
    least = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(least))
    step = scale * next(each for each in TICK_STEPS if each * scale >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    yield from (number * step for number in range(first, last + 1))
