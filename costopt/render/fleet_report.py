"""The report of a fleet's replay: utilization, completion times and tenants, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costopt.backtesting.fleet.figures import PolicyFigures
from costopt.formatting import percent_text
from costopt.render.fleet_table import MEANING, fleet_table, tenants_table
from costopt.render.html import render_page, require_report_extra, write_page
from costopt.render.svg import (
    POOL_COLOURS,
    Canvas,
    LegendEntry,
    ResponsiveChart,
    css_color,
    make_canvases,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_PX = 280
LINE_COLOURS = (*POOL_COLOURS, "firm", "ink")
Draw = Callable[["Axes", PolicyFigures, str], None]


def write_fleet_report(
    figures: Sequence[PolicyFigures], path: Path, *, title: str, notes: Sequence[str]
) -> Path:
    """Write one self-contained HTML file.

    Raise MissingExtraError without the extra ``report``, StoreError where the disk refuses.
    """
    require_report_extra()
    page = render_page(
        "fleet.html.j2",
        title=title,
        made_at=datetime.now(UTC),
        lead=_lead(figures),
        busy=_lines("busy", figures, _draw_busy, "GPUs held over time", _busy_text),
        spread=_lines("spread", figures, _draw_spread, "Jobs completed within", _spread_text),
        table=fleet_table(figures, "Figures", ()),
        tenants=tenants_table(figures),
        how=(("Figures", MEANING), *(("Method", note) for note in notes)),
    )
    return write_page(path, page)


def _lead(figures: Sequence[PolicyFigures]) -> str:
    best = min(figures, key=lambda each: each.mean_s)
    return (
        f"{best.policy} completes jobs in {best.mean_s:,.0f} s on average on {best.gpus:,} GPUs, "
        f"{best.static_ratio:.2f} of the time in the tenants' own partitions; the worst tenant "
        f"takes {best.worst_tenant_ratio:.2f} of its own."
    )


def _busy_text(each: PolicyFigures) -> str:
    return f"{each.policy}: {percent_text(each.allocated_share)} of {each.gpus:,} GPUs"


def _spread_text(each: PolicyFigures) -> str:
    return f"{each.policy}: half within {each.p50_s:,.0f} s, 95 % within {each.p95_s:,.0f} s"


def _lines(
    name: str,
    figures: Sequence[PolicyFigures],
    draw: Draw,
    what: str,
    text: Callable[[PolicyFigures], str],
) -> ResponsiveChart:
    """A line per policy."""
    colours = [LINE_COLOURS[index % len(LINE_COLOURS)] for index in range(len(figures))]

    def plot(canvas: Canvas) -> str:
        figure, axes = canvas.axes(HEIGHT_PX)
        for each, colour in zip(figures, colours, strict=True):
            draw(axes, each, css_color(colour))
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", nbins=5)
        return canvas.svg(figure)

    wide, narrow = map(plot, make_canvases(name))
    legend = tuple(
        LegendEntry("line", colour, each.policy)
        for each, colour in zip(figures, colours, strict=True)
    )
    return ResponsiveChart(wide, narrow, f"{what}. {'; '.join(map(text, figures))}.", legend)


def _draw_busy(axes: Axes, each: PolicyFigures, colour: str) -> None:
    hours, gpus = zip(*each.busy, strict=True)
    axes.plot(hours, gpus, color=colour, linewidth=1.4)
    axes.set_xlabel("hours since the start", fontsize=12, color=css_color("muted"))


def _draw_spread(axes: Axes, each: PolicyFigures, colour: str) -> None:
    shares = np.linspace(0, 100, len(each.completion_s))
    axes.plot(np.maximum(each.completion_s, 1.0), shares, color=colour, linewidth=1.6)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_xlabel("seconds from submission to end", fontsize=12, color=css_color("muted"))
