"""A backtest's charts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from costopt.backtesting.hindsight import OptimumPoint
from costopt.backtesting.ranking import PolicySummary
from costopt.domain.market import Pool
from costopt.formatting import usd_text
from costopt.ledger.run_view import RunView
from costopt.render.drawing import (
    LINE_COLOURS,
    Axis,
    Drawing,
    Line,
    Mark,
    Point,
    Rectangle,
    Symbol,
    Text,
    hours_axis,
    make_drawing,
    round_values,
    value_axis,
)
from costopt.render.reports.pool_hours import BAR_PX, PoolInterval, hours_since, row_name
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart
from costopt.views.backtest import ORACLES

COINCIDENT_SHARE = 0.015
"""Of the highest value: lines that are nowhere farther apart lie on one another."""
DASH_PX = 9.6
EMPTY: Mapping[str, Collection[float]] = {}
HEIGHT_PX = 260


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBar:
    """The dollars of one strategy's runs; ``misses`` counts those that ended late.

    An ``oracle`` knew something of the future.
    """

    strategy: str
    mean_usd: float
    p50_usd: float
    p95_usd: float
    misses: int
    runs: int
    oracle: bool = False
    windows_usd: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, standings: Sequence[PolicySummary], costs: Mapping[str, Collection[float]] = EMPTY
    ) -> tuple[CostBar, ...]:
        """Return a bar for each policy whose figures are known; ``costs`` are of its windows."""
        grouped = len({standing.group for standing in standings}) > 1
        return tuple(
            cls(
                strategy=f"{s.group}: {s.policy}" if grouped else s.policy,
                mean_usd=mean_usd,
                p50_usd=p50_usd,
                p95_usd=p95_usd,
                misses=misses,
                runs=s.runs,
                windows_usd=() if grouped else tuple(costs.get(s.policy, ())),
                oracle=s.policy in ORACLES,
            )
            for s in standings
            if (mean_usd := s.mean_usd) is not None
            if (p50_usd := s.p50_usd) is not None and (p95_usd := s.p95_usd) is not None
            if (misses := s.misses) is not None
        )


def cost_bars(rows: Sequence[CostBar]) -> ResponsiveChart:
    """One bar per strategy: the mean, with a whisker from the median to the 95th percentile.

    A dot under it is one window.
    """
    alt = "Mean cost per run: " + ", ".join(
        f"{row.strategy} {usd_text(row.mean_usd)}" for row in rows
    )
    legend = (
        LegendEntry("bar", "pool1", "kept every deadline"),
        LegendEntry("bar", "bad", "missed some"),
        *([LegendEntry("dot", "muted", "one window")] if any(r.windows_usd for r in rows) else []),
    )
    return draw_chart(lambda narrow: _bars(rows, narrow), f"{alt}.", legend)


def spend_curves(curves: Mapping[str, BacktestCurve]) -> ResponsiveChart:
    """Cumulative dollars of one run per strategy, in hours since its start."""
    colours = _colours(curves)
    lines = {name: curve.spend_usd for name, curve in curves.items()}
    legend = tuple(
        LegendEntry("line", colours[name], f"{name}: {usd_text(curve.usd)}")
        for name, curve in curves.items()
        if curve.spend_usd
    )
    alt = "Cumulative dollars over time; at the end " + ", ".join(e.text for e in legend)
    return draw_chart(lambda narrow: _curves(lines, colours, "${:,.6g}", narrow), f"{alt}.", legend)


def progress_curves(curves: Mapping[str, BacktestCurve]) -> ResponsiveChart:
    """The share of the work done by one run per strategy, in hours since its start."""
    colours = _colours(curves)
    lines = {name: curve.done for name, curve in curves.items()}
    legend = tuple(LegendEntry("line", colours[name], name) for name in curves)
    ends = ", ".join(f"{name} {curve.done[-1][1]:.0%}" for name, curve in curves.items())
    alt = f"Share of the work done over time; at the end {ends}."
    return draw_chart(lambda narrow: _curves(lines, colours, "{:.0%}", narrow), alt, legend)


def _colours(curves: Mapping[str, BacktestCurve]) -> dict[str, str]:
    return {
        strategy: LINE_COLOURS[index % len(LINE_COLOURS)] for index, strategy in enumerate(curves)
    }


def _bars(rows: Sequence[CostBar], narrow: bool) -> Drawing:
    marks: list[Mark] = []
    for index, row in enumerate(rows):
        middle = index + 0.66
        marks += [
            Symbol("dot", (usd, middle + 0.24), "muted", 4.5, 0.55) for usd in row.windows_usd
        ]
        end = (row.mean_usd, middle + 0.15)
        marks.append(Rectangle((0.0, middle - 0.15), end, "bad" if row.misses else "pool1"))
        ends = ((row.p50_usd, middle), (row.p95_usd, middle))
        marks.append(Line(ends, "ink", 1.5))
        marks += [Symbol("edge", each, "ink", 9) for each in ends]
        marks.append(row_name(row.strategy, index))
        most = (max(row.mean_usd, row.p95_usd), middle)
        marks.append(Text(usd_text(row.mean_usd), most, "ink", offset_px=(8.0, 4.0)))
    high = max((max(row.p95_usd, row.mean_usd) for row in rows), default=0.0) or 1.0
    high *= 1.35 if narrow else 1.14
    ticks = tuple((usd, f"${usd:,.6g}") for usd in round_values(0.0, high, 5))
    count = max(1, len(rows))
    height_px = 22 + 40 + BAR_PX * count
    return make_drawing(narrow, height_px, Axis(0.0, high, ticks), Axis(count, 0.0), marks, 0.0)


def _curves(
    lines: Mapping[str, Sequence[Point]], colours: Mapping[str, str], label: str, narrow: bool
) -> Drawing:
    marks: list[Mark] = []
    for bunch in coincident(lines):
        for index, strategy in enumerate(bunch):
            dashes = (DASH_PX, DASH_PX * (len(bunch) - 1)) if len(bunch) > 1 else ()
            # In a bunch each draws its dash where the others have their gaps.
            line = tuple(lines[strategy])
            marks.append(Line(line, colours[strategy], 2.4, dashes, index * DASH_PX))
    points = [point for line in lines.values() for point in line]
    y = value_axis(1.05 * max((y for _, y in points), default=0.0), label.format, 5)
    x = hours_axis(1.05 * max((x for x, _ in points), default=1.0))
    return make_drawing(narrow, HEIGHT_PX, x, y, marks)


def coincident(lines: Mapping[str, Sequence[Point]]) -> list[list[str]]:
    """Return the names of the lines; those that no eye tells apart are together."""
    import numpy as np

    known = {name: np.array(points) for name, points in lines.items() if len(points)}
    hours = np.linspace(0, max((each[-1, 0] for each in known.values()), default=0), 100)
    heights = {name: np.interp(hours, each[:, 0], each[:, 1]) for name, each in known.items()}
    apart = COINCIDENT_SHARE * max((each.max() for each in heights.values()), default=0)
    bunches: list[list[str]] = []
    for name, each in heights.items():
        near = [b for b in bunches if np.abs(heights[b[0]] - each).max() <= apart]
        if near:
            near[0].append(name)
        else:
            bunches.append([name])
    return bunches


@dataclass(frozen=True, slots=True)
class BacktestCurve:
    """Cumulative dollars and the share of the work done, both by hour, and where it ran."""

    spend_usd: tuple[Point, ...]
    done: tuple[Point, ...]
    stays: tuple[PoolInterval, ...]

    @property
    def usd(self) -> float:
        """Dollars at its end."""
        return self.spend_usd[-1][1] if self.spend_usd else 0.0


def drawable(curves: Mapping[str, BacktestCurve]) -> dict[str, BacktestCurve]:
    """Return those that have points."""
    return {name: curve for name, curve in curves.items() if curve.spend_usd and curve.done}


def curve_of_run(run: RunView) -> BacktestCurve:
    """A replay's."""
    begun_at = run.begun_at
    work = run.summary.work_units or 1.0
    return BacktestCurve(
        spend_usd=tuple(
            (hours_since(begun_at, p.at), p.usd_micros / 1e6) for p in run.curves.spend
        ),
        done=tuple((hours_since(begun_at, p.at), p.done_units / work) for p in run.curves.progress),
        stays=_joined(
            PoolInterval(
                row.pool,
                hours_since(begun_at, row.launched_at),
                hours_since(begun_at, row.ended_at or run.now),
            )
            for row in run.intervals
        ),
    )


def curve_of_moments(moments: Sequence[OptimumPoint], work_units: float) -> BacktestCurve:
    """The hindsight optimum's, from its grid points."""
    begun_at = moments[0].at
    return BacktestCurve(
        spend_usd=tuple((hours_since(begun_at, m.at), m.usd) for m in moments),
        done=tuple((hours_since(begun_at, m.at), m.done_units / work_units) for m in moments),
        stays=_joined(
            PoolInterval(
                moment.pool, hours_since(begun_at, moment.at), hours_since(begun_at, after.at)
            )
            for moment, after in pairwise(moments)
            if moment.pool is not None
        ),
    )


def _joined(stays: Iterable[PoolInterval]) -> tuple[PoolInterval, ...]:
    """Stays that touch or overlap in one pool are one, in the order of their begin."""
    joined: list[PoolInterval] = []
    last: dict[Pool, int] = {}
    for stay in sorted(stays, key=lambda each: each.begin_h):
        index = last.get(stay.pool)
        if index is not None and stay.begin_h <= joined[index].end_h + 1e-9:
            before = joined[index]
            joined[index] = PoolInterval(stay.pool, before.begin_h, max(before.end_h, stay.end_h))
        else:
            last[stay.pool] = len(joined)
            joined.append(stay)
    return tuple(joined)
