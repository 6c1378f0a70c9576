"""Dollars over the deadline: what more time buys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costopt.domain.plan import Forecast
from costopt.formatting import seconds_text, usd_text
from costopt.planning.what_if import Scenario
from costopt.render.drawing import (
    LINE_COLOURS,
    Drawing,
    Line,
    Mark,
    Point,
    Symbol,
    make_drawing,
    padded_axis,
    value_axis,
)
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart
from costopt.render.table import Table, value_at
from costopt.views.frontier import FrontierRow

HEIGHT_PX = 260
HOUR_S = 3600.0
DONE_BY_THEN = "the cheapest plan that is done by then"


def deadline_plot(scenarios: Table, points: Sequence[FrontierRow]) -> ResponsiveChart | None:
    """Return a line per policy and terms whose scenarios differ in their deadline; else the
    cheapest plan of the frontier by its finish; None where neither has two points."""
    lines = _scenario_lines(scenarios) or _frontier_line(points)
    if not lines:
        return None
    colours = dict(zip(lines, LINE_COLOURS, strict=False))
    shown = {name: lines[name] for name in colours}
    legend = [LegendEntry("line", colours[name], name) for name in shown]
    ends = (
        f"{name} from {usd_text(line[0][1])} in {seconds_text(line[0][0] * HOUR_S)} to "
        f"{usd_text(line[-1][1])} in {seconds_text(line[-1][0] * HOUR_S)}"
        for name, line in shown.items()
    )
    alt = f"Expected dollars over the deadline: {'; '.join(ends)}."
    return draw_chart(lambda narrow: _draw(shown, colours, narrow), alt, legend)


def _scenario_lines(scenarios: Table) -> dict[str, list[Point]]:
    found: dict[tuple[str, str, float | None], dict[float, float]] = {}
    for row in scenarios.rows:
        scenario, forecast = value_at(row, "scenario"), value_at(row, "forecast")
        span_s = value_at(row, "deadline_s")
        if isinstance(scenario, Scenario) and isinstance(forecast, Forecast) and span_s:
            key = (scenario.policy.name, scenario.terms, scenario.tolerance)
            found.setdefault(key, {})[span_s / HOUR_S] = forecast.usd_mean
    several = len({terms for _, terms, _ in found}) > 1
    lines: dict[str, list[Point]] = {}
    for (policy, terms, tolerance), line in found.items():
        if len(line) > 1:
            parts = (
                policy,
                terms if several else "",
                "" if tolerance is None else f"tolerance {tolerance:.0%}",
            )
            lines[", ".join(filter(None, parts))] = sorted(line.items())
    return lines


def _frontier_line(points: Sequence[FrontierRow]) -> dict[str, list[Point]]:
    """Each plan that costs less than all that are done before it."""
    line: list[Point] = []
    for point in sorted(points, key=lambda each: (each.takes_s, each.usd)):
        if not line or point.usd < line[-1][1]:
            line.append((point.takes_s / HOUR_S, point.usd))
    return {DONE_BY_THEN: line} if len(line) > 1 else {}


def _draw(
    lines: Mapping[str, Sequence[Point]], colours: Mapping[str, str], narrow: bool
) -> Drawing:
    marks: list[Mark] = []
    for name, line in lines.items():
        marks.append(Line(tuple(line), colours[name]))
        for hours, usd in line:
            tip = f"{name}: {usd_text(usd)} in {seconds_text(hours * HOUR_S)}"
            marks.append(Symbol("dot", (hours, usd), colours[name], 8, title=tip))
    every = [point for line in lines.values() for point in line]
    x = padded_axis([hours for hours, _ in every], "{:,.6g} h".format, 4 if narrow else 9, 0.04)
    y = value_axis(1.1 * max(usd for _, usd in every), "${:,.6g}".format, 5)
    return make_drawing(narrow, HEIGHT_PX, x, y, marks)
