"""The curves of a run: dollars, energy and progress over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from costopt.formatting import usd_micros_text, wh_text, whole_percent_text
from costopt.ledger.curve import SpendPoint
from costopt.report.drawing import Canvas, LegendEntry, ResponsiveChart, css_color, make_canvases
from costopt.report.run import RunView
from costopt.report.time_axis import TimeAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_PX = 230


def spend_plot(run: RunView) -> ResponsiveChart:
    """Cumulative dollars against the on-demand baseline for the same work."""
    summary = run.summary
    points = [(axis_at, point.usd_micros / 1e6) for axis_at, point in _spend(run)]
    due = summary.baseline_usd_micros
    baseline = _baseline(run, None if due is None else due / 1e6)
    return _drawing(
        "spend",
        run,
        (points, "spend", baseline),
        lambda value: f"${value:,.0f}" if value >= 10 or value == 0 else f"${value:,.2f}",
        (usd_micros_text(summary.usd_micros), usd_micros_text(summary.due_usd_micros)),
        "Cumulative dollars",
    )


def energy_plot(run: RunView) -> ResponsiveChart:
    """Cumulative kilowatt-hours against the on-demand baseline for the same work.

    The curve ends where a node begins whose power is unknown.
    """
    summary = run.summary
    points = [(at, point.wh / 1000) for at, point in _spend(run) if point.wh is not None]
    due = summary.baseline_wh
    baseline = _baseline(run, None if due is None else due / 1000)
    return _drawing(
        "energy",
        run,
        (points, "energy", baseline),
        lambda value: f"{value:g}",
        (wh_text(summary.wh), wh_text(summary.due_wh)),
        "Cumulative kilowatt-hours",
    )


def progress_plot(run: RunView) -> ResponsiveChart:
    """Share of the work done and saved against the slowest steady pace that keeps the deadline."""
    wide, narrow = (_progress_svg(run, canvas) for canvas in make_canvases("progress"))
    summary = run.summary
    alt = (
        f"Progress over time: {whole_percent_text(summary.done_share)} of the work done, "
        f"{summary.lost_units:,.0f} {summary.unit or 'units'} lost to interruptions."
    )
    legend = (
        LegendEntry("line", "done", "work done"),
        LegendEntry("tint", "saved", "saved in a checkpoint"),
        LegendEntry("dash", "baseline", "slowest steady pace that meets the deadline"),
    )
    return ResponsiveChart(wide, narrow, alt, legend)


def _spend(run: RunView) -> list[tuple[float, SpendPoint]]:
    axis = TimeAxis.of(run)
    return [(axis.place(point.at), point) for point in run.curves.spend]


def _baseline(run: RunView, whole: float | None) -> list[tuple[float, float]]:
    work = run.summary.work_units
    if whole is None or not work:
        return []
    axis = TimeAxis.of(run)
    reached, points = 0.0, []
    for point in run.curves.progress:
        # the baseline is never interrupted, so work done twice is not charged to it twice
        reached = max(reached, min(1.0, point.done_units / work))
        points.append((axis.place(point.at), whole * reached))
    return points


def _drawing(
    name: str,
    run: RunView,
    lines: tuple[Sequence[tuple[float, float]], str, Sequence[tuple[float, float]]],
    label: Callable[[float], str],
    totals: tuple[str, str],
    title: str,
) -> ResponsiveChart:
    points, colour, baseline = lines
    svgs = [
        _curve_svg(run, canvas, points, colour, baseline, label) for canvas in make_canvases(name)
    ]
    legend = [LegendEntry("line", colour, f"this run: {totals[0]}")]
    alt = f"{title} over time, reaching {totals[0]}"
    if baseline:
        text = f"on-demand for the same work: {totals[1]}"
        legend.append(LegendEntry("dash", "baseline", text))
        alt += f"; {text}"
    return ResponsiveChart(svgs[0], svgs[1], alt + ".", tuple(legend))


def _curve_svg(
    run: RunView,
    canvas: Canvas,
    points: Sequence[tuple[float, float]],
    colour: str,
    baseline: Sequence[tuple[float, float]],
    label: Callable[[float], str],
) -> str:
    figure, axes = canvas.axes(HEIGHT_PX)
    if points:
        x, y = zip(*points, strict=True)
        axes.fill_between(x, y, color=css_color(colour), alpha=0.12, linewidth=0)
        _line(axes, points, colour)
    if baseline:
        _line(axes, baseline, "baseline", dashed=True)
    axes.set_ylim(0, 1.08 * max([1e-9, *(y for _, y in points), *(y for _, y in baseline)]))
    axes.yaxis.set_major_formatter(lambda value, _: label(value))
    axes.locator_params(axis="y", nbins=5)
    TimeAxis.of(run).draw(axes, canvas)
    return canvas.svg(figure)


def _progress_svg(run: RunView, canvas: Canvas) -> str:
    figure, axes = canvas.axes(HEIGHT_PX)
    axis, work = TimeAxis.of(run), run.summary.work_units
    if work:
        x = [axis.place(point.at) for point in run.curves.progress]
        saved = [100 * point.saved_units / work for point in run.curves.progress]
        axes.fill_between(x, saved, step="post", color=css_color("saved"), alpha=0.25, linewidth=0)
        done = [100 * point.done_units / work for point in run.curves.progress]
        _pace(axes, axis, run)
        _line(axes, list(zip(x, done, strict=True)), "done")
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 25, 50, 75, 100], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axis.draw(axes, canvas)
    return canvas.svg(figure)


def _pace(axes: Axes, axis: TimeAxis, run: RunView) -> None:
    start, deadline = run.summary.start_at, run.summary.deadline_at
    if start is not None and deadline is not None:
        pace = [(axis.place(start), 0.0), (axis.place(deadline), 100.0)]
        _line(axes, pace, "baseline", dashed=True)


def _line(
    axes: Axes, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False
) -> None:
    x, y = zip(*points, strict=True)
    axes.plot(
        x,
        y,
        color=css_color(colour),
        linewidth=1.8 if dashed else 2.4,
        linestyle=(0, (4, 3)) if dashed else "solid",
        solid_joinstyle="round",
    )
