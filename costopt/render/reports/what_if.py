"""The frontier of a what-if: table, chart and report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from costopt.formatting import (
    gco2e_text,
    kwh_text,
    pool_text,
    seconds_text,
    usd_text,
    whole_percent_text,
)
from costopt.render.drawing import (
    FINISH_COLOURS,
    Drawing,
    Mark,
    Symbol,
    Text,
    make_drawing,
    padded_axis,
)
from costopt.render.html import render_page
from costopt.render.reports.deadline_curve import deadline_plot
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart
from costopt.render.table import Table
from costopt.views.frontier import FrontierRow, frontier_table

HEIGHT_PX = 340
NUMBER_PX = 11
DIGIT_PX = 7.0
"""As wide as a digit of any font gets at this size."""


def frontier_plot(rows: Sequence[FrontierRow]) -> ResponsiveChart:
    """A dot per plan with its number; its figures show under the pointer. The chosen has a ring.

    Plans of unknown energy have no place in it. The finish is shown in equal classes from the
    earliest to the latest. Raises ValueError for no plan to draw.
    """
    dots = [_Dot(number, row, row.kwh) for number, row in enumerate(rows, 1) if row.kwh is not None]
    shown = [dot.row for dot in dots]
    classes = _Classes.of(shown)
    legend = classes.legend()
    if any(row.chosen for row in shown):
        legend = (*legend, LegendEntry("ring", "note", "the policy's own choice"))
    if any(row.knee for row in shown):
        legend = (*legend, LegendEntry("diamond", "ink", "the knee: beyond it a dollar saves less"))
    if any(row.is_mix for row in shown):
        legend = (*legend, LegendEntry("faint", "ink", "mix of pools in time, no policy's choice"))
    return draw_chart(lambda narrow: _draw(dots, classes, narrow), _alt(dots), legend)


@dataclass(frozen=True, slots=True)
class _Dot:
    """A plan with its number and its energy, which is known."""

    number: int
    row: FrontierRow
    kwh: float

    @property
    def label(self) -> str:
        """The plan's number, with the names of the policies that choose it."""
        return " ".join((str(self.number), ", ".join(self.row.policies))).rstrip()


def _alt(dots: Sequence[_Dot]) -> str:
    cheapest, frugal = min(dots, key=lambda d: d.row.usd), min(dots, key=lambda d: d.kwh)
    takes_s = [dot.row.takes_s for dot in dots]
    return (
        f"{len(dots)} plans: from {usd_text(cheapest.row.usd)} and "
        f"{kwh_text(cheapest.kwh)} to {usd_text(frugal.row.usd)} and "
        f"{kwh_text(frugal.kwh)}; they finish in "
        f"{seconds_text(min(takes_s))} to {seconds_text(max(takes_s))}."
    )


class _Classes:
    """Equal stretches of the time that plans take, each with a colour."""

    def __init__(self, edges_s: Sequence[float]) -> None:
        self.edges_s = edges_s

    @classmethod
    def of(cls, rows: Sequence[FrontierRow]) -> _Classes:
        """As many as there are colours; one where all plans take as long to the minute."""
        if not rows:
            raise ValueError("a frontier needs a plan")
        first, last = min(r.takes_s for r in rows), max(r.takes_s for r in rows)
        count = len(FINISH_COLOURS) if last - first >= 60 * len(FINISH_COLOURS) else 1
        return cls([first + (last - first) * i / count for i in range(count + 1)])

    def colour(self, row: FrontierRow) -> str:
        """The colour of the class that holds the plan."""
        inner = self.edges_s[1:-1]
        return FINISH_COLOURS[sum(row.takes_s > edge for edge in inner)]

    def legend(self) -> tuple[LegendEntry, ...]:
        """One entry per class, the earliest first."""
        if len(self.edges_s) == 2:
            return (
                LegendEntry("dot", FINISH_COLOURS[0], f"takes {seconds_text(self.edges_s[1])}"),
            )
        starts = ("takes up to", *("up to" for _ in self.edges_s[2:]))
        return tuple(
            LegendEntry("dot", colour, f"{start} {seconds_text(edge_s)}")
            for colour, start, edge_s in zip(FINISH_COLOURS, starts, self.edges_s[1:], strict=True)
        )


def _draw(dots: Sequence[_Dot], classes: _Classes, narrow: bool) -> Drawing:
    x = padded_axis([dot.row.usd for dot in dots], "${:,.6g}".format, 4 if narrow else 9, 0.06)
    y = padded_axis([dot.kwh for dot in dots], "{:,.6g}".format, 6, 0.14)
    x, y = replace(x, title="expected dollars"), replace(y, title="expected kWh", grid=True)
    marks: list[Mark] = []
    for each in dots:
        at, ring_px = (each.row.usd, each.kwh), _ring_px(narrow)
        size_px = (9 if narrow else 12) * (0.6 if each.row.is_mix else 1)
        colour, tip = classes.colour(each.row), _tip(each.number, each.row)
        # The gap between dots that touch.
        marks.append(Symbol("dot", at, "surface", size_px + 1.2))
        opacity = 0.45 if each.row.is_mix else 1
        marks.append(Symbol("dot", at, colour, size_px - 1.2, opacity, tip))
        if each.row.chosen:
            marks.append(Symbol("ring", at, "note", ring_px, title=f"Chosen: plan {each.number}"))
        if each.row.knee:
            knee = f"Knee: plan {each.number}"
            marks.append(Symbol("diamond", at, "ink", math.sqrt(2) * ring_px, title=knee))
    drawing = make_drawing(narrow, HEIGHT_PX, x, y, marks)
    return replace(drawing, marks=(*marks, *_numbers(drawing, dots, narrow)))


def _numbers(drawing: Drawing, dots: Sequence[_Dot], narrow: bool) -> Iterator[Text]:
    """Yield each dot's number beside it, with a line to it where there was no room close by."""
    places = (drawing.place((dot.row.usd, dot.kwh)) for dot in dots)
    points = [(x, -y) for x, y in places]
    sizes = [(DIGIT_PX * len(dot.label) + 4, NUMBER_PX + 3) for dot in dots]
    (left, top), (right, bottom) = (
        drawing.place(corner)
        for corner in ((drawing.x.low, drawing.y.high), (drawing.x.high, drawing.y.low))
    )
    within = Box(left, -bottom, right, -top)
    labels = label_places(points, sizes, within, _ring_px(narrow))
    for dot, point, place in zip(dots, points, labels, strict=True):
        yield Text(
            dot.label,
            (dot.row.usd, dot.kwh),
            "muted" if dot.row.is_mix else "ink",
            "middle",
            # Letters stand on their baseline, four pixels below their middle.
            (place[0] - point[0], point[1] - place[1] + 4),
            NUMBER_PX,
            is_bold=dot.row.chosen or bool(dot.row.policies),
            has_leader=math.dist(point, place) > NEAREST_PX + STEP_PX,
        )


def _ring_px(narrow: bool) -> float:
    return 15.0 if narrow else 19.0


def _tip(number: int, row: FrontierRow) -> str:
    figures = f"{usd_text(row.usd)}, {kwh_text(row.kwh)}, {gco2e_text(row.gco2e)} CO2e"
    pools = ", ".join(map(pool_text, row.pools))
    return f"Plan {number}: {figures}, takes {seconds_text(row.takes_s)}: {pools}"


_HOW = (
    ("Frontier", "Plans of one policy; none of them is beaten in dollars, energy and finish."),
    (
        "Dollars",
        "Expected, interruptions and the work that they cost included. No node was rented.",
    ),
    (
        "Energy, CO2e",
        "Modelled from the catalogue's power figures and each region's intensity; unknown where "
        "a node's power is. Such plans are compared in energy with no other.",
    ),
    ("Takes, finish", "The median under the hazard, from the instant of the plan."),
    ("Scenarios", "Each policy, deadline and choice of capacity types, planned alone."),
)

NONE_FRUGAL = "; none takes less energy"


def what_if_page(
    points: Sequence[FrontierRow],
    scenarios: Table,
    *,
    policy: str,
    now: datetime | None = None,
    title: str = "What if",
) -> str:
    """Return frontier and scenarios as one self-contained HTML document.

    ``points`` may be empty; ``policy`` is the one that they are of.
    """
    plot = frontier_plot(points) if any(p.kwh is not None for p in points) else None
    table = frontier_table(points)
    listed = list(zip(table.rows, points, strict=True))
    return render_page(
        "what_if.html.j2",
        title=title,
        made_at=now or datetime.now(UTC),
        lead=scenarios.lead if plot else f"{scenarios.lead} {_lead(points, policy)}",
        trade_off=_lead(points, policy),
        policy=policy,
        plot=plot,
        over_deadline=deadline_plot(scenarios, points),
        points=replace(table, rows=[r for r, p in listed if not p.is_mix]),
        mixes=replace(table, rows=[r for r, p in listed if p.is_mix]),
        has_choice=any(point.chosen for point in points),
        undrawn=sum(point.kwh is None for point in points),
        scenarios=scenarios,
        how=_HOW,
    )


def _lead(points: Sequence[FrontierRow], policy: str) -> str:
    if not points:
        return f"Policy {policy} has no plan to draw a frontier of."
    cheapest = min(points, key=lambda p: p.usd)
    sentence = f"The cheapest plan comes to {usd_text(cheapest.usd)} and {kwh_text(cheapest.kwh)}"
    parts = (
        _frugal(cheapest, points),
        _bend(cheapest, points),
        _earlier(cheapest, min(points, key=lambda p: p.takes_s)),
    )
    return f"{sentence}{''.join(parts)}."


def _frugal(cheapest: FrontierRow, points: Sequence[FrontierRow]) -> str:
    if cheapest.kwh is None:
        return " energy"
    known = [(kwh, point.usd) for point in points if (kwh := point.kwh) is not None]
    min_kwh, usd_of_least = min(known)
    if cheapest.kwh <= min_kwh * 1.001 or cheapest.usd <= 0:
        return "; none is known to take less energy" if len(known) < len(points) else NONE_FRUGAL
    less, more = (
        whole_percent_text(1 - min_kwh / cheapest.kwh),
        whole_percent_text(usd_of_least / cheapest.usd - 1),
    )
    return f"; the most frugal takes {less} less energy for {more} more dollars"


def _bend(cheapest: FrontierRow, points: Sequence[FrontierRow]) -> str:
    bend = next((point for point in points if point.knee), None)
    if bend is None or not cheapest.kwh or bend.kwh is None or cheapest.usd <= 0:
        return ""
    less = whole_percent_text(1 - bend.kwh / cheapest.kwh)
    more = whole_percent_text(bend.usd / cheapest.usd - 1)
    return f"; the knee, beyond which a dollar saves less, is at {less} less for {more} more"


def _earlier(cheapest: FrontierRow, earliest: FrontierRow) -> str:
    if earliest.takes_s > cheapest.takes_s - 60 or cheapest.usd <= 0:
        return ""
    more = whole_percent_text(earliest.usd / cheapest.usd - 1)
    before, now = seconds_text(cheapest.takes_s), seconds_text(earliest.takes_s)
    return f"; the earliest takes {now} where the cheapest takes {before}, for {more} more dollars"


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
