"""The frontier of a job's plans: kilowatt-hours against dollars, coloured by the finish."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costopt.report.drawing import FINISH_COLOURS, Canvas, Drawing, LegendEntry, canvases, paint
from costopt.report.figure import carbon, duration, energy, usd
from costopt.report.frontier_table import FrontierRow
from costopt.report.label_places import NEAREST_PX, STEP_PX, Box, label_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_PX = 340
MARK = "plan"
CHOSEN = "chosen"
LINE = {"arrowstyle": "-", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
NUMBER_PX = 11
DIGIT_PX = 7.0
"""As wide as a digit of any font gets at this size."""


def frontier_plot(rows: Sequence[FrontierRow]) -> Drawing:
    """A dot per plan with its number; its figures show under the pointer. The chosen has a ring.

    The finish is told in equal classes from the earliest to the latest. Raises ValueError for no
    plan.
    """
    classes = _Classes.of(rows)
    wide, narrow = (_svg(rows, classes, canvas) for canvas in canvases("frontier"))
    cheapest, frugal = min(rows, key=lambda r: r.usd), min(rows, key=lambda r: r.kwh)
    alt = (
        f"{len(rows)} plans: from {usd(cheapest.usd * 1e6)} and {energy(cheapest.kwh * 1000)} to "
        f"{usd(frugal.usd * 1e6)} and {energy(frugal.kwh * 1000)}; they finish in "
        f"{duration(min(r.takes_s for r in rows))} to {duration(max(r.takes_s for r in rows))}."
    )
    ring = LegendEntry("ring", "note", "the policy's own choice")
    legend = classes.legend()
    return Drawing(wide, narrow, alt, (*legend, ring) if any(r.chosen for r in rows) else legend)


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
            return (LegendEntry("dot", FINISH_COLOURS[0], f"takes {duration(self.edges_s[1])}"),)
        starts = ("takes up to", *("up to" for _ in self.edges_s[2:]))
        return tuple(
            LegendEntry("dot", colour, f"{start} {duration(edge_s)}")
            for colour, start, edge_s in zip(FINISH_COLOURS, starts, self.edges_s[1:], strict=True)
        )


def _svg(rows: Sequence[FrontierRow], classes: _Classes, canvas: Canvas) -> str:
    figure, axes = canvas.axes(HEIGHT_PX)
    for number, row in enumerate(rows, start=1):
        (dot,) = axes.plot(
            [row.usd],
            [row.kwh],
            "o",
            color=paint(classes.colour(row)),
            markersize=9 if canvas.narrow else 12,
            markeredgecolor=paint("surface"),
            markeredgewidth=1.2,
        )
        dot.set_gid(f"{MARK}{number}")
        if row.chosen:
            _draw_ring(axes, row, canvas)
    axes.margins(x=0.06, y=0.14)
    axes.locator_params(axis="x", nbins=4 if canvas.narrow else 9)
    axes.locator_params(axis="y", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"${value:,.6g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.set_xlabel("expected dollars", fontsize=12, color=paint("muted"))
    axes.annotate(
        "expected kWh",
        (0, 1),
        xycoords=("figure pixels", "axes fraction"),
        xytext=(4, 10),
        textcoords="offset points",
        fontsize=12,
        color=paint("muted"),
    )
    _draw_numbers(axes, rows, canvas)
    return _with_tips(canvas.svg(figure), canvas, rows)


def _draw_ring(axes: Axes, row: FrontierRow, canvas: Canvas) -> None:
    (ring,) = axes.plot(
        [row.usd],
        [row.kwh],
        "o",
        markerfacecolor="none",
        markeredgecolor=paint("note"),
        markeredgewidth=2,
        markersize=_ring_px(canvas),
        zorder=4,
    )
    ring.set_gid(CHOSEN)


def _draw_numbers(axes: Axes, rows: Sequence[FrontierRow], canvas: Canvas) -> None:
    """Each dot's number beside it, with a line to it where there was no room close by."""
    axes.autoscale_view()  # or pixels would be those of limits that are set when it is drawn
    placed = axes.transData.transform([(row.usd, row.kwh) for row in rows])
    dots = [(float(x), float(y)) for x, y in placed]
    inside = axes.get_window_extent()
    sizes = [(DIGIT_PX * len(str(number)) + 4, NUMBER_PX + 3) for number in range(1, len(rows) + 1)]
    within = Box(inside.x0, inside.y0, inside.x1, inside.y1)
    places = label_places(dots, sizes, within, _ring_px(canvas))
    for number, (row, dot, place) in enumerate(zip(rows, dots, places, strict=True), start=1):
        is_far = math.dist(dot, place) > NEAREST_PX + STEP_PX
        label = axes.annotate(
            str(number),
            (row.usd, row.kwh),
            xytext=place,
            textcoords="figure pixels",
            ha="center",
            va="center",
            fontsize=NUMBER_PX,
            fontweight="bold" if row.chosen else "normal",
            color=paint("ink"),
            arrowprops=LINE | {"color": paint("muted")} if is_far else None,
        )
        label.set_gid(f"number{number}")


def _ring_px(canvas: Canvas) -> float:
    return 15.0 if canvas.narrow else 19.0


def _with_tips(svg: str, canvas: Canvas, rows: Sequence[FrontierRow]) -> str:
    for number, row in enumerate(rows, start=1):
        tag = f'<g id="{canvas.name}-{MARK}{number}">'
        tip = html.escape(_tip(number, row), quote=False)
        svg = svg.replace(tag, f"{tag}<title>{tip}</title>", 1)
        if row.chosen:
            ring = f'<g id="{canvas.name}-{CHOSEN}">'
            svg = svg.replace(ring, f"{ring}<title>Chosen: plan {number}</title>", 1)
    return svg


def _tip(number: int, row: FrontierRow) -> str:
    figures = f"{usd(row.usd * 1e6)}, {energy(row.kwh * 1000)}, {carbon(row.gco2e)} CO2e"
    return f"Plan {number}: {figures}, takes {duration(row.takes_s)}: {', '.join(row.pools)}"
