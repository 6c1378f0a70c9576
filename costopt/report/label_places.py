"""Where the labels of close dots go, so that none lies on another or on a dot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

NEAREST_PX = 14.0
STEP_PX = 7.0
DIRECTIONS = 16


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its edges, in pixels; ``top`` is above ``bottom``."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def holds(self, other: Box) -> bool:
        """Whether ``other`` lies in it."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )


def around(centre: Point, width: float, height: float) -> Box:
    """The box of that size."""
    x, y = centre
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def label_places(
    dots: Sequence[Point], sizes: Sequence[Point], within: Box, dot_px: float
) -> list[Point]:
    """The centre of each dot's label, of width and height ``sizes``: as near as there is room.

    Labels are placed one after the other. One for which there is no room anywhere lies above its
    dot.
    """
    taken = [around(dot, dot_px, dot_px) for dot in dots]
    places: list[Point] = []
    for dot, (width, height) in zip(dots, sizes, strict=True):
        place = next(
            (
                near
                for near in _places_near(dot, within)
                if within.holds(box := around(near, width, height))
                and not any(box.overlaps(other) for other in taken)
            ),
            (dot[0], dot[1] + NEAREST_PX),
        )
        taken.append(around(place, width, height))
        places.append(place)
    return places


def _places_near(dot: Point, within: Box) -> Iterator[Point]:
    """Rings around the dot, each from above it to below it."""
    farthest = math.hypot(within.right - within.left, within.top - within.bottom)
    turns = sorted((abs(i), i) for i in range(-DIRECTIONS // 2 + 1, DIRECTIONS // 2 + 1))
    radius = NEAREST_PX
    while radius <= farthest:
        for _, turn in turns:
            angle = math.pi / 2 + 2 * math.pi * turn / DIRECTIONS
            yield dot[0] + radius * math.cos(angle), dot[1] + radius * math.sin(angle)
        radius += STEP_PX
