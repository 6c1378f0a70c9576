"""A run's charts: spend, energy, progress and the timeline of its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from costopt.domain.events import DecisionMade
from costopt.domain.market import CapacityType, Pool
from costopt.formatting import pools_text, usd_micros_text, usd_text, wh_text, whole_percent_text
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.summary import SpendPoint
from costopt.render.run_tables import RunView, expected_totals
from costopt.render.svg import (
    POOL_COLOURS,
    Canvas,
    LegendEntry,
    ResponsiveChart,
    css_color,
    make_canvases,
    with_titles,
)

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
        [(TimeAxis.of(run).place(at), usd) for at, usd in expected_totals(run)],
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
    expected: Sequence[tuple[float, float]] = (),
) -> ResponsiveChart:
    """``expected``: totals that were expected at decisions."""
    points, colour, baseline = lines
    svgs = [
        _curve_svg(run, canvas, points, colour, baseline, label, expected)
        for canvas in make_canvases(name)
    ]
    legend = [LegendEntry("line", colour, f"this run: {totals[0]}")]
    alt = f"{title} over time, reaching {totals[0]}"
    if baseline:
        text = f"on-demand for the same work: {totals[1]}"
        legend.append(LegendEntry("dash", "baseline", text))
        alt += f"; {text}"
    if expected:
        text = f"total expected at each decision: {usd_text(expected[0][1])} at the first"
        legend.append(LegendEntry("dot", "note", text))
        alt += f"; {text}"
    return ResponsiveChart(svgs[0], svgs[1], alt + ".", tuple(legend))


def _curve_svg(
    run: RunView,
    canvas: Canvas,
    points: Sequence[tuple[float, float]],
    colour: str,
    baseline: Sequence[tuple[float, float]],
    label: Callable[[float], str],
    expected: Sequence[tuple[float, float]],
) -> str:
    figure, axes = canvas.axes(HEIGHT_PX)
    for at, usd in expected:
        axes.plot([at], [usd], "o", color=css_color("note"), markersize=6, zorder=4, clip_on=False)
    if points:
        x, y = zip(*points, strict=True)
        axes.fill_between(x, y, color=css_color(colour), alpha=0.12, linewidth=0)
        _line(axes, points, colour)
    if baseline:
        _line(axes, baseline, "baseline", dashed=True)
    axes.set_ylim(0, 1.08 * max([1e-9, *(y for _, y in (*points, *baseline, *expected))]))
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


LANE_PX = 17
TITLE_PX = 28
MAX_LANES = 120


def timeline(run: RunView) -> ResponsiveChart:
    """Nodes by pool, at most MOST_LANES side by side, with interruptions and checkpoints."""
    lanes = _lanes(run)
    colours = pool_colours(run)
    wide, narrow = (_svg(run, lanes, colours, canvas) for canvas in make_canvases("timeline"))
    return ResponsiveChart(wide, narrow, _alt(run), _legend(run))


def pool_colours(run: RunView) -> dict[Pool, str]:
    """A colour per pool in the order of first use; uninterruptible pools share one."""
    colours: dict[Pool, str] = {}
    spot = 0
    for row in run.intervals:
        if row.pool in colours:
            continue
        if row.pool.capacity_type is CapacityType.SPOT:
            colours[row.pool] = POOL_COLOURS[spot % len(POOL_COLOURS)]
            spot += 1
        else:
            colours[row.pool] = "firm"
    return colours


def _lanes(run: RunView) -> dict[Pool, list[list[NodeInterval]]]:
    """Per pool, nodes in as few lanes as keep them apart."""
    lanes: dict[Pool, list[list[NodeInterval]]] = {}
    for row in run.intervals:
        mine = lanes.setdefault(row.pool, [])
        for lane in mine:
            if (lane[-1].ended_at or run.now) <= row.launched_at:
                lane.append(row)
                break
        else:
            mine.append([row])
    return lanes


def _svg(
    run: RunView,
    lanes: dict[Pool, list[list[NodeInterval]]],
    colours: dict[Pool, str],
    canvas: Canvas,
) -> str:
    drawn = {pool: rows[:MAX_LANES] for pool, rows in lanes.items()}
    rows_px = (TITLE_PX + LANE_PX) * (2 if run.decisions else 1)
    inner_px = sum(TITLE_PX + LANE_PX * len(rows) for rows in drawn.values()) + rows_px
    figure, axes = canvas.axes(22 + 40 + inner_px, left_px=56)
    axis = TimeAxis.of(run)
    axes.set_ylim(inner_px, 0)
    axes.set_yticks([])
    axes.grid(axis="x", color=css_color("grid"), linewidth=1)
    top = 0.0
    for pool, rows in drawn.items():
        hidden = len(lanes[pool]) - len(rows)
        _title(axes, top, _pool_title(pool, canvas) + (f" (+{hidden} rows)" if hidden else ""))
        top += TITLE_PX
        for lane in rows:
            for row in lane:
                _bar(axes, axis, run, row, top, colours[pool])
            top += LANE_PX
    _title(axes, top, "checkpoints")
    places = [axis.place(at) for at in run.checkpoints]
    axes.vlines(
        places, top + TITLE_PX, top + TITLE_PX + LANE_PX - 4, color=css_color("saved"), linewidth=2
    )
    if run.decisions:
        _draw_decisions(axes, axis, run, top + TITLE_PX + LANE_PX)
    axis.draw(axes, canvas)
    titles = {f"decision{i}": _decision_title(each) for i, each in enumerate(run.decisions)}
    return with_titles(canvas.svg(figure), canvas, titles)


def _draw_decisions(axes: Axes, axis: TimeAxis, run: RunView, top: float) -> None:
    """A tick for each decision, with its reason under the pointer."""
    _title(axes, top, "decisions")
    for index, each in enumerate(run.decisions):
        at = axis.place(each.at)
        ends = [top + TITLE_PX, top + TITLE_PX + LANE_PX - 4]
        (tick,) = axes.plot([at, at], ends, color=css_color("note"), linewidth=3, clip_on=False)
        tick.set_gid(f"decision{index}")


def _decision_title(event: DecisionMade) -> str:
    return pools_text(f"{event.decision_id}: {event.reason}")


def _title(axes: Axes, top: float, text: str) -> None:
    axes.annotate(
        text,
        (0, top + TITLE_PX - 6),
        xycoords=("axes fraction", "data"),
        fontsize=12,
        color=css_color("ink"),
        bbox={"facecolor": css_color("surface"), "edgecolor": "none", "pad": 1.5},
        annotation_clip=False,
        parse_math=False,
    )


def _pool_title(pool: Pool, canvas: Canvas) -> str:
    return f"{pool.zone} · {_terms(pool)}" if canvas.narrow else pool_label(pool)


def pool_label(pool: Pool) -> str:
    """A pool in words: where, which machine, on which terms."""
    return f"{pool.provider} {pool.zone} · {pool.instance_type} · {_terms(pool)}"


def _terms(pool: Pool) -> str:
    return pool.capacity_type.value.replace("_", "-")


def _bar(
    axes: Axes, axis: TimeAxis, run: RunView, row: NodeInterval, top: float, colour: str
) -> None:
    middle, height = top + LANE_PX / 2, LANE_PX - 5
    begin, end = axis.place(row.launched_at), axis.place(row.ended_at or run.now)
    bottom = middle - height / 2
    axes.broken_barh([(begin, end - begin)], (bottom, height), color=css_color(colour), alpha=0.35)
    spans = [(axis.place(start), axis.place(stop)) for start, stop in row.busy]
    axes.broken_barh(
        [(start, stop - start) for start, stop in spans], (bottom, height), color=css_color(colour)
    )
    if row.cause is not None and row.cause.is_unplanned:
        axes.plot(
            [end],
            [middle],
            marker="x",
            markersize=7,
            markeredgewidth=2.2,
            color=css_color("bad"),
            clip_on=False,
            zorder=5,
        )
    if row.noticed_at is not None:
        axes.plot(
            [end],
            [middle],
            marker="o",
            markersize=14,
            markerfacecolor="none",
            markeredgecolor=css_color("bad"),
            markeredgewidth=1.8,
            clip_on=False,
            zorder=5,
        )


def _legend(run: RunView) -> tuple[LegendEntry, ...]:
    entries = [
        LegendEntry("bar", "ink", "training"),
        LegendEntry("tint", "ink", "starting, saving or idle"),
        LegendEntry("cross", "bad", "node taken or failed"),
    ]
    if any(row.noticed_at for row in run.intervals):
        entries.append(LegendEntry("ring", "bad", "announced beforehand"))
    entries.append(LegendEntry("tick", "saved", "checkpoint"))
    if run.decisions:
        entries.append(LegendEntry("tick", "note", "decision; its reason is under the pointer"))
    return tuple(entries)


def _alt(run: RunView) -> str:
    pools = len({row.pool for row in run.intervals})
    return (
        f"Timeline of {len(run.intervals)} nodes in {pools} pools: "
        f"{run.summary.interruptions} interruptions, {run.summary.checkpoints} checkpoints. "
        "The table of nodes below holds every time."
    )


_STEPS = (1, 2, 3, 5, 6, 10, 12, 15, 24, 30, 48, 60, 120, 240, 480, 960)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times in units of ``unit_s`` seconds since ``begun_at``, up to ``end``.

    ``deadline`` is None where it lies so far ahead that it would squeeze the run.
    """

    begun_at: datetime
    unit: str
    unit_s: float
    end: float
    deadline: float | None

    @classmethod
    def of(cls, run: RunView) -> TimeAxis:
        """The axis that shows the whole run, and its deadline where that is near."""
        lasted_s = max(1.0, (run.ended_at - run.begun_at).total_seconds())
        due = run.summary.deadline_at
        due_s = None if due is None else (due - run.begun_at).total_seconds()
        shown = due_s is not None and 0 < due_s <= 2.5 * lasted_s
        end_s = max(lasted_s, due_s if shown and due_s is not None else 0)
        unit, unit_s = _unit(end_s)
        return cls(
            run.begun_at,
            unit,
            unit_s,
            end_s / unit_s,
            due_s / unit_s if shown and due_s is not None else None,
        )

    def place(self, at: datetime) -> float:
        """Return where an instant is on the axis."""
        return (at - self.begun_at).total_seconds() / self.unit_s

    def draw(self, axes: Axes, canvas: Canvas) -> None:
        """Ticks, label and the deadline."""
        axes.set_xlim(0, self.end * 1.01)
        step = _step(self.end, 6 if canvas.narrow else 12)
        axes.set_xticks([step * i for i in range(math.floor(self.end * 1.01 / step) + 1)])
        axes.set_xlabel(f"{self.unit} since the start", fontsize=12, color=css_color("muted"))
        if self.deadline is None:
            return
        axes.axvline(self.deadline, color=css_color("bad"), linewidth=1.5, zorder=1)
        axes.annotate(
            "deadline",
            (self.deadline, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 6),
            textcoords="offset points",
            ha="right" if self.deadline > self.end * 0.9 else "center",
            color=css_color("bad"),
            fontsize=12,
        )


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 180:
        return "seconds", 1.0
    if seconds < 3 * 3600:
        return "minutes", 60.0
    return ("hours", 3600.0) if seconds < 5 * 86400 else ("days", 86400.0)


def _step(end: float, most: int) -> float:
    return next((float(step) for step in _STEPS if end / step <= most), end / most)
