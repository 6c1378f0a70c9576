"""The plots of a backtest: cost per strategy, and dollars over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costopt.ledger.curve import Curves
from costopt.report.backtest_table import BacktestRow
from costopt.report.drawing import (
    POOL_COLOURS,
    Canvas,
    Drawing,
    LegendEntry,
    canvases,
    paint,
)
from costopt.report.figure import usd

BAR_PX = 52
HEIGHT_PX = 260


def cost_bars(rows: Sequence[BacktestRow]) -> Drawing:
    """One bar per strategy: the mean, with a whisker from the median to the 95th percentile."""
    wide, narrow = (_bars_svg(rows, canvas) for canvas in canvases("bars"))
    alt = "Mean cost per run: " + ", ".join(
        f"{row.strategy} {usd(row.mean_usd * 1e6)}" for row in rows
    )
    legend = (
        LegendEntry("bar", "pool1", "kept every deadline"),
        LegendEntry("bar", "bad", "missed some"),
    )
    return Drawing(wide, narrow, f"{alt}.", legend)


def spend_curves(curves: Mapping[str, Curves]) -> Drawing:
    """Cumulative dollars of one run per strategy, in hours since its first node."""
    colours = {
        strategy: (*POOL_COLOURS, "firm")[index % (len(POOL_COLOURS) + 1)]
        for index, strategy in enumerate(curves)
    }
    wide, narrow = (_curves_svg(curves, colours, canvas) for canvas in canvases("curves"))
    legend = tuple(
        LegendEntry("line", colours[strategy], f"{strategy}: {usd(c.spend[-1].usd_micros)}")
        for strategy, c in curves.items()
        if c.spend
    )
    alt = "Cumulative dollars over time; at the end " + ", ".join(e.text for e in legend)
    return Drawing(wide, narrow, f"{alt}.", legend)


def _bars_svg(rows: Sequence[BacktestRow], canvas: Canvas) -> str:
    figure, axes = canvas.axes(22 + 40 + BAR_PX * max(1, len(rows)), left_px=0)
    axes.grid(visible=False)
    axes.set_ylim(max(1, len(rows)), 0)
    axes.set_yticks([])
    most = max([1e-9, *(max(row.p95_usd, row.mean_usd) for row in rows)])
    axes.set_xlim(0, most * (1.35 if canvas.narrow else 1.14))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: f"${value:,.6g}")
    for index, row in enumerate(rows):
        middle = index + 0.7
        colour = "bad" if row.misses else "pool1"
        axes.barh(middle, row.mean_usd, height=0.38, color=paint(colour))
        axes.plot([row.p50_usd, row.p95_usd], [middle, middle], color=paint("ink"), linewidth=1.5)
        ends = [row.p50_usd, row.p95_usd]
        axes.plot(ends, [middle, middle], "|", color=paint("ink"), markersize=9)
        axes.text(
            0,
            index + 0.31,
            row.strategy,
            fontsize=13,
            color=paint("ink"),
            va="center",
            parse_math=False,
        )
        axes.annotate(
            usd(row.mean_usd * 1e6),
            (max(row.mean_usd, row.p95_usd), middle),
            xytext=(8, 0),
            textcoords="offset points",
            fontsize=12,
            color=paint("ink"),
            va="center",
            parse_math=False,
        )
    return canvas.svg(figure)


def _curves_svg(curves: Mapping[str, Curves], colours: Mapping[str, str], canvas: Canvas) -> str:
    figure, axes = canvas.axes(HEIGHT_PX)
    for strategy, drawn in curves.items():
        if not drawn.spend:
            continue
        begun = drawn.spend[0].at
        hours = [(point.at - begun).total_seconds() / 3600 for point in drawn.spend]
        dollars = [point.usd_micros / 1e6 for point in drawn.spend]
        axes.plot(hours, dollars, color=paint(colours[strategy]), linewidth=2.4)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.locator_params(nbins=5)
    axes.yaxis.set_major_formatter(lambda value, _: f"${value:,.6g}")
    axes.set_xlabel("hours since the first node", fontsize=12, color=paint("muted"))
    return canvas.svg(figure)
