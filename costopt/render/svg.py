"""Drawings as inline SVG whose colors are those of the page.

The same drawing gives the same bytes, and has no ids, since several drawings share a page.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from costopt.render.drawing import (
    Area,
    Axis,
    Drawing,
    Line,
    Mark,
    Point,
    Rectangle,
    Symbol,
    Text,
    VerticalLine,
)

TICK_PX, LABEL_PX, TITLE_PX = 4.0, 20.0, 37.0
"""Below the axis: the end of a tick's line, and the baselines of its label and of the title."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A symbol in a colour, and its meaning.

    Symbols are line, dash, bar, tint, cross, tick, ring, diamond, dot and faint, a small pale dot.
    """

    symbol: str
    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class ResponsiveChart:
    """The same plot for a wide page and a phone, with its text alternative."""

    wide: str
    narrow: str
    alt: str
    legend: tuple[LegendEntry, ...]


def draw_chart(
    make: Callable[[bool], Drawing], alt: str, legend: Sequence[LegendEntry]
) -> ResponsiveChart:
    """Return the drawings of a drawing, which ``make`` returns; where it gets True, for a phone."""
    return ResponsiveChart(draw_svg(make(False)), draw_svg(make(True)), alt, tuple(legend))


def draw_svg(drawing: Drawing) -> str:
    """Return the drawing as an ``<svg>`` element without width and height."""
    parts = [*_grid(drawing), *_axes(drawing)]
    for mark in drawing.marks:
        parts.extend(_mark(drawing, mark))
    size = f"0 0 {drawing.width_px} {_number(drawing.height_px)}"
    drawn = "\n".join(parts)
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-size="12">\n'
        f"{drawn}\n</svg>"
    )


def _grid(drawing: Drawing) -> Iterator[str]:
    x, y = drawing.x, drawing.y
    lines: list[tuple[Point, Point]] = []
    if y.grid:
        lines += [((x.low, value), (x.high, value)) for value, _ in y.ticks]
    if x.grid:
        lines += [((value, y.low), (value, y.high)) for value, _ in x.ticks]
    for ends in lines:
        yield f'<path d="{_path(drawing, ends)}" stroke="var(--grid)"/>'


def _axes(drawing: Drawing) -> Iterator[str]:
    x, y = drawing.x, drawing.y
    yield f'<path d="{_path(drawing, ((x.low, y.low), (x.high, y.low)))}" stroke="var(--muted)"/>'
    ends = ""
    for value, label in x.ticks:
        left, bottom = drawing.place((value, y.low))
        ends += f"M{_number(left)} {_number(bottom)}v{_number(TICK_PX)}"
        yield _text(label, left, bottom + LABEL_PX, "muted", "middle")
    if ends:
        yield f'<path d="{ends}" stroke="var(--muted)"/>'
    for value, label in y.ticks:
        left, top = drawing.place((x.low, value))
        yield _text(label, left - 6, top + 4, "muted", "end")
    if x.title:
        center, bottom = drawing.place((x.low, y.low))
        center = (center + drawing.width_px - drawing.right_px) / 2
        yield _text(x.title, center, bottom + TITLE_PX, "muted", "middle")
    if y.title:
        yield _text(y.title, 4, drawing.top_px - 10, "muted", "start")


def _mark(drawing: Drawing, mark: Mark) -> Iterator[str]:
    match mark:
        case Line(points=points):
            yield from _line(drawing, mark, points)
        case Area(points=points) if points:
            low = drawing.y.low
            outline = ((points[0][0], low), *points, (points[-1][0], low))
            yield f'<path d="{_path(drawing, outline)}Z" {_fill(mark.colour, mark.opacity)}/>'
        case Rectangle():
            yield from _bar(drawing, mark)
        case Symbol():
            yield _titled(_symbol(mark, *drawing.place(mark.at)), mark.title)
        case VerticalLine(x=x) if _is_within(drawing.x, x):
            ends = ((x, drawing.y.low), (x, drawing.y.high))
            yield f'<path d="{_path(drawing, ends)}" {_stroke(mark.colour, mark.width_px)}/>'
        case Text():
            left, top = drawing.place(mark.at)
            right, down = mark.offset_px
            if mark.has_leader:
                line = f"M{_number(left)} {_number(top)}l{_number(right)} {_number(down)}"
                yield f'<path d="{line}" {_stroke("muted", 0.7)}/>'
            yield _text(
                mark.text, left + right, top + down, mark.colour, mark.anchor, mark.size_px,
                is_bold=mark.is_bold,
            )  # fmt: skip


def _line(drawing: Drawing, mark: Line, points: Sequence[Point]) -> Iterator[str]:
    if not any(_is_within(drawing.x, x) for x, _ in points):
        return
    style = _stroke(mark.colour, mark.width_px)
    if mark.dashes_px:
        style += f' stroke-dasharray="{" ".join(map(_number, mark.dashes_px))}"'
    if mark.offset_px:
        style += f' stroke-dashoffset="{_number(mark.offset_px)}"'
    d = _path(drawing, points)
    yield _titled(f'<path d="{d}" fill="none" stroke-linejoin="round" {style}/>', mark.title)


def _bar(drawing: Drawing, mark: Rectangle) -> Iterator[str]:
    (x0, y0), (x1, y1) = mark.start, mark.end
    if max(x0, x1) < drawing.x.low or min(x0, x1) > drawing.x.high:
        return
    left, top = drawing.place((_clamped(drawing.x, x0), y0))
    right, bottom = drawing.place((_clamped(drawing.x, x1), y1))
    sizes = (min(left, right), min(top, bottom), abs(right - left), abs(bottom - top))
    x, y, width, height = map(_number, sizes)
    fill = _fill(mark.colour, mark.opacity)
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {fill}/>'


def _symbol(mark: Symbol, x: float, y: float) -> str:
    half, left, top = mark.size_px / 2, _number(x), _number(y)
    r = _number(half)
    match mark.kind:
        case "dot":
            return f'<circle cx="{left}" cy="{top}" r="{r}" {_fill(mark.colour, mark.opacity)}/>'
        case "ring":
            style = _stroke(mark.colour, 2)
            return f'<circle cx="{left}" cy="{top}" r="{r}" fill="none" {style}/>'
        case "diamond":
            # As wide as high, on a corner.
            d = f"M{left} {_number(y - half)}L{_number(x + half)} {top}"
            d += f"L{left} {_number(y + half)}L{_number(x - half)} {top}Z"
            return f'<path d="{d}" fill="none" {_stroke(mark.colour, 2)}/>'
        case "cross":
            size = _number(mark.size_px)
            d = f"M{_number(x - half)} {_number(y - half)}l{size} {size}m0 -{size}l-{size} {size}"
            return f'<path d="{d}" {_stroke(mark.colour, 2.2)}/>'
        case "edge":
            d = f"M{left} {_number(y - half)}v{_number(mark.size_px)}"
            return f'<path d="{d}" {_stroke(mark.colour, 1)}/>'


def _text(
    text: str,
    x: float,
    y: float,
    colour: str,
    anchor: str,
    size_px: float = 12.0,
    *,
    is_bold: bool = False,
) -> str:
    style = "" if anchor == "start" else f' text-anchor="{anchor}"'
    style += "" if size_px == 12 else f' font-size="{_number(size_px)}"'
    style += ' font-weight="700"' if is_bold else ""
    # Where words lie on a grid's line, the line ends before them.
    style += ' paint-order="stroke" stroke="var(--surface)" stroke-width="3"'
    place = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<text {place} fill="var(--{colour})"{style}>{html.escape(text, quote=False)}</text>'


def _titled(drawn: str, title: str) -> str:
    if not title:
        return drawn
    return f"<g><title>{html.escape(title, quote=False)}</title>{drawn}</g>"


def _fill(colour: str, opacity: float) -> str:
    return f'fill="var(--{colour})"' + ("" if opacity == 1 else f' opacity="{opacity:g}"')


def _stroke(colour: str, width_px: float) -> str:
    return f'stroke="var(--{colour})" stroke-width="{_number(width_px)}"'


def _path(drawing: Drawing, points: Sequence[Point]) -> str:
    places = (drawing.place((_clamped(drawing.x, x), y)) for x, y in points)
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in places)


def _clamped(axis: Axis, value: float) -> float:
    return min(max(value, axis.low), axis.high)


def _is_within(axis: Axis, value: float) -> bool:
    return axis.low <= value <= axis.high


def _number(value: float) -> str:
    """To a hundredth of a pixel, and no longer than needed."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
