"""The report of a fleet's replay: utilization, completion times and tenants, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from costopt.backtesting.fleet.figures import PolicyFigures
from costopt.formatting import percent_text
from costopt.render.drawing import (
    LINE_COLOURS,
    Axis,
    Line,
    Point,
    hours_axis,
    make_drawing,
    value_axis,
)
from costopt.render.html import render_page
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart
from costopt.views.fleet import MEANING, fleet_table, tenants_table

HEIGHT_PX = 280


def fleet_page(figures: Sequence[PolicyFigures], *, title: str, notes: Sequence[str]) -> str:
    """Return one self-contained HTML document."""
    return render_page(
        "fleet.html.j2",
        title=title,
        made_at=datetime.now(UTC),
        lead=_lead(figures),
        busy=_busy(figures),
        spread=_spread(figures),
        table=fleet_table(figures, "Figures", ()),
        tenants=tenants_table(figures),
        how=(("Figures", MEANING), *(("Method", note) for note in notes)),
    )


def _lead(figures: Sequence[PolicyFigures]) -> str:
    best = min(figures, key=lambda each: each.mean_s)
    return (
        f"{best.policy} completes jobs in {best.mean_s:,.0f} s on average on {best.gpus:,} GPUs, "
        f"{best.static_ratio:.2f} of the time in the tenants' own partitions; the worst tenant "
        f"takes {best.worst_tenant_ratio:.2f} of its own."
    )


def _busy(figures: Sequence[PolicyFigures]) -> ResponsiveChart:
    points = [tuple(each.busy) for each in figures]
    x = hours_axis(1.05 * max((hour for line in points for hour, _ in line), default=1.0))
    most = max((gpus for line in points for _, gpus in line), default=1.0)
    y = value_axis(1.05 * most, "{:,.6g}".format, 5)
    text = "; ".join(
        f"{each.policy}: {percent_text(each.allocated_share)} of {each.gpus:,} GPUs"
        for each in figures
    )
    return _draw(figures, points, x, y, f"GPUs held over time. {text}.")


def _spread(figures: Sequence[PolicyFigures]) -> ResponsiveChart:
    points = [
        tuple(
            (max(seconds, 1.0), 100.0 * number / max(1, len(each.completion_s) - 1))
            for number, seconds in enumerate(each.completion_s)
        )
        for each in figures
    ]
    seconds = [x for line in points for x, _ in line] or [1.0]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    ticks = tuple((10.0**power, f"{10**power:,}") for power in range(low, high + 1))
    title = "seconds from submission to end"
    x = Axis(10.0**low, 10.0 ** max(high, low + 1), ticks, title, is_log=True)
    y = value_axis(105.0, "{:g} %".format, 5)
    text = "; ".join(
        f"{each.policy}: half within {each.p50_s:,.0f} s, 95 % within {each.p95_s:,.0f} s"
        for each in figures
    )
    return _draw(figures, points, x, y, f"Jobs completed within. {text}.")


def _draw(
    figures: Sequence[PolicyFigures],
    points: Sequence[tuple[Point, ...]],
    x: Axis,
    y: Axis,
    alt: str,
) -> ResponsiveChart:
    """A line per policy."""
    colours = [LINE_COLOURS[index % len(LINE_COLOURS)] for index in range(len(figures))]
    marks = [Line(line, colour, 1.5) for line, colour in zip(points, colours, strict=True) if line]
    legend = [
        LegendEntry("line", colour, each.policy)
        for each, colour in zip(figures, colours, strict=True)
    ]
    return draw_chart(lambda narrow: make_drawing(narrow, HEIGHT_PX, x, y, marks), alt, legend)
