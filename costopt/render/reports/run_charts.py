"""A run's charts: spend, energy, progress and the timeline of its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Literal

from costopt.domain.events import DecisionMade
from costopt.domain.market import CapacityType, Pool
from costopt.formatting import pools_text, usd_micros_text, usd_text, wh_text, whole_percent_text
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.run_view import RunView
from costopt.ledger.summary import SpendPoint
from costopt.render.drawing import (
    DASHED,
    POOL_COLOURS,
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
    make_drawing,
    value_axis,
)
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart

HEIGHT_PX = 230


def spend_plot(run: RunView) -> ResponsiveChart:
    """Cumulative dollars against the on-demand baseline for the same work."""
    summary = run.summary
    points = [(axis_at, point.usd_micros / 1e6) for axis_at, point in _spend(run)]
    due = summary.baseline_usd_micros
    baseline = _baseline(run, None if due is None else due / 1e6)
    return _draw_totals(
        run,
        (points, "spend", baseline),
        lambda value: f"${value:,.0f}" if value >= 10 or value == 0 else f"${value:,.2f}",
        (usd_micros_text(summary.usd_micros), usd_micros_text(summary.due_usd_micros)),
        "Cumulative dollars",
        [(TimeAxis.of(run).place(at), usd) for at, usd in run.expected_totals()],
    )


def energy_plot(run: RunView) -> ResponsiveChart:
    """Cumulative kilowatt-hours against the on-demand baseline for the same work.

    The curve ends where a node begins whose power is unknown.
    """
    summary = run.summary
    points = [(at, point.wh / 1000) for at, point in _spend(run) if point.wh is not None]
    due = summary.baseline_wh
    baseline = _baseline(run, None if due is None else due / 1000)
    return _draw_totals(
        run,
        (points, "energy", baseline),
        lambda value: f"{value:g}",
        (wh_text(summary.wh), wh_text(summary.due_wh)),
        "Cumulative kilowatt-hours",
    )


def progress_plot(run: RunView) -> ResponsiveChart:
    """Share of the work done and saved against the slowest steady pace that keeps the deadline."""
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
    return draw_chart(lambda narrow: _progress(run, narrow), alt, legend)


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


def _draw_totals(
    run: RunView,
    lines: tuple[Sequence[Point], str, Sequence[Point]],
    label: Callable[[float], str],
    totals: tuple[str, str],
    title: str,
    expected: Sequence[Point] = (),
) -> ResponsiveChart:
    """``expected``: totals that were expected at decisions."""
    points, colour, baseline = lines
    high = 1.08 * max([1e-9, *(y for _, y in (*points, *baseline, *expected))])
    y = value_axis(high, label, 5)
    marks: list[Mark] = [Area(tuple(points), colour, 0.12)] if points else []
    marks += _lines(points, colour)
    marks += _lines(baseline, "baseline", dashed=True)
    marks += [Symbol("dot", at, "note", 6) for at in expected]
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
    return draw_chart(lambda narrow: _over_time(run, narrow, y, marks), alt + ".", legend)


def _progress(run: RunView, narrow: bool) -> Drawing:
    axis, work = TimeAxis.of(run), run.summary.work_units
    marks: list[Mark] = []
    if work:
        saved = [(axis.place(p.at), 100 * p.saved_units / work) for p in run.curves.progress]
        done = [(axis.place(p.at), 100 * p.done_units / work) for p in run.curves.progress]
        if saved:
            marks.append(Area(tuple(_steps(saved)), "saved", 0.25))
        start, deadline = run.summary.start_at, run.summary.deadline_at
        if start is not None and deadline is not None:
            pace = [(axis.place(start), 0.0), (axis.place(deadline), 100.0)]
            marks += _lines(pace, "baseline", dashed=True)
        marks += _lines(done, "done")
    ticks = tuple((share, f"{share} %") for share in (0, 25, 50, 75, 100))
    return _over_time(run, narrow, Axis(0, 104, ticks, grid=True), marks)


def _steps(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the corners of steps that hold each value until the next point."""
    before = points[0][1]
    for x, value in points:
        yield x, before
        yield x, value
        before = value


def _lines(points: Sequence[Point], colour: str, *, dashed: bool = False) -> list[Mark]:
    if not points:
        return []
    return [Line(tuple(points), colour, 1.8, DASHED) if dashed else Line(tuple(points), colour)]


def _over_time(run: RunView, narrow: bool, y: Axis, marks: Sequence[Mark]) -> Drawing:
    axis = TimeAxis.of(run)
    marks = (*axis.deadline_marks(y), *marks)
    return make_drawing(narrow, HEIGHT_PX, axis.ticked(narrow), y, marks)


LANE_PX = 17
TITLE_PX = 28
MAX_LANES = 120


def timeline(run: RunView) -> ResponsiveChart:
    """Nodes by pool, at most MOST_LANES side by side, with interruptions and checkpoints."""
    lanes = _lanes(run)
    colours = pool_colours(run)
    return draw_chart(
        lambda narrow: _timeline(run, lanes, colours, narrow), _alt(run), _legend(run)
    )


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


def _timeline(
    run: RunView,
    lanes: dict[Pool, list[list[NodeInterval]]],
    colours: dict[Pool, str],
    narrow: bool,
) -> Drawing:
    axis = TimeAxis.of(run)
    marks: list[Mark] = []
    top = 0.0
    for pool, rows in lanes.items():
        hidden = len(rows) - MAX_LANES
        more = f" (+{hidden} rows)" if hidden > 0 else ""
        marks.append(_title(top, _pool_title(pool, narrow) + more))
        top += TITLE_PX
        for lane in rows[:MAX_LANES]:
            marks += chain.from_iterable(_bar(axis, run, row, top, colours[pool]) for row in lane)
            top += LANE_PX
    saves = [(at, "") for at in run.checkpoints]
    marks += _ticks(axis, top, "checkpoints", saves, "saved", 2)
    top += TITLE_PX + LANE_PX
    if run.decisions:
        made = [(each.at, _decision_title(each)) for each in run.decisions]
        marks += _ticks(axis, top, "decisions", made, "note", 3)
        top += TITLE_PX + LANE_PX
    y, x = Axis(top, 0.0), axis.ticked(narrow, grid=True)
    return make_drawing(narrow, 22 + 40 + top, x, y, (*axis.deadline_marks(y), *marks))


def _ticks(
    axis: TimeAxis,
    top: float,
    what: str,
    instants: Sequence[tuple[datetime, str]],
    colour: str,
    width_px: float,
) -> Iterator[Mark]:
    """Yield a tick for each instant, with what shows under the pointer."""
    yield _title(top, what)
    for instant, title in instants:
        at = axis.place(instant)
        ends = ((at, top + TITLE_PX), (at, top + TITLE_PX + LANE_PX - 4))
        yield Line(ends, colour, width_px, title=title)


def _decision_title(event: DecisionMade) -> str:
    return pools_text(f"{event.decision_id}: {event.reason}")


def _title(top: float, text: str) -> Text:
    return Text(text, (0.0, top + TITLE_PX - 6), "ink")


def _pool_title(pool: Pool, narrow: bool) -> str:
    return f"{pool.zone} · {_terms(pool)}" if narrow else pool_label(pool)


def pool_label(pool: Pool) -> str:
    """A pool in words: where, which machine, on which terms."""
    return f"{pool.provider} {pool.zone} · {pool.instance_type} · {_terms(pool)}"


def _terms(pool: Pool) -> str:
    return pool.capacity_type.value.replace("_", "-")


def _bar(
    axis: TimeAxis, run: RunView, row: NodeInterval, top: float, colour: str
) -> Iterator[Mark]:
    middle, half = top + LANE_PX / 2, (LANE_PX - 5) / 2
    begin, end = axis.place(row.launched_at), axis.place(row.ended_at or run.now)
    yield Rectangle((begin, middle - half), (end, middle + half), colour, 0.35)
    for start, stop in row.busy:
        yield Rectangle(
            (axis.place(start), middle - half), (axis.place(stop), middle + half), colour
        )
    if row.cause is not None and row.cause.is_unplanned:
        yield Symbol("cross", (end, middle), "bad", 7)
    if row.noticed_at is not None:
        yield Symbol("ring", (end, middle), "bad", 14)


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

    def ticked(self, narrow: bool, *, grid: bool = False) -> Axis:
        """Return the axis of a drawing."""
        step = _step(self.end, 6 if narrow else 12)
        count = math.floor(self.end * 1.01 / step) + 1
        ticks = tuple((step * number, f"{step * number:g}") for number in range(count))
        return Axis(0.0, self.end * 1.01, ticks, f"{self.unit} since the start", grid=grid)

    def deadline_marks(self, y: Axis) -> tuple[Mark, ...]:
        """Return the deadline's line and name, where it is shown."""
        if self.deadline is None:
            return ()
        anchor: Literal["end", "middle"] = "end" if self.deadline > self.end * 0.9 else "middle"
        name = Text("deadline", (self.deadline, y.high), "bad", anchor, (0.0, -8.0))
        return VerticalLine(self.deadline, "bad"), name


def _unit(seconds: float) -> tuple[str, float]:
    if seconds < 180:
        return "seconds", 1.0
    if seconds < 3 * 3600:
        return "minutes", 60.0
    return ("hours", 3600.0) if seconds < 5 * 86400 else ("days", 86400.0)


def _step(end: float, most: int) -> float:
    return next((float(step) for step in _STEPS if end / step <= most), end / most)
