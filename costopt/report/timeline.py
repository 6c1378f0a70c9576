"""The timeline: every node as a bar in its pool's lanes, with what befell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costopt.domain.market import CapacityType, Pool
from costopt.ledger.node import NodeInterval
from costopt.report.drawing import (
    POOL_COLOURS,
    Canvas,
    LegendEntry,
    ResponsiveChart,
    css_color,
    make_canvases,
)
from costopt.report.run import RunView
from costopt.report.time_axis import TimeAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    inner_px = sum(TITLE_PX + LANE_PX * len(rows) for rows in drawn.values()) + TITLE_PX + LANE_PX
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
    axis.draw(axes, canvas)
    return canvas.svg(figure)


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
    return tuple(entries)


def _alt(run: RunView) -> str:
    pools = len({row.pool for row in run.intervals})
    return (
        f"Timeline of {len(run.intervals)} nodes in {pools} pools: "
        f"{run.summary.interruptions} interruptions, {run.summary.checkpoints} checkpoints. "
        "The table of nodes below holds every time."
    )
