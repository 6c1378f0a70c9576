"""What a node-hour cost and how clean the grid was, hour by hour, on a run's time axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from costopt.domain.events import CarbonIntensityRecorded, NodeLaunched, PriceChanged
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.formatting import number_text, usd_per_hour_text
from costopt.ledger.node_account import NodeInterval
from costopt.ledger.run_view import RunView
from costopt.render.drawing import Line, Mark, make_drawing, value_axis
from costopt.render.reports.run_charts import TimeAxis, pool_colours, pool_label
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart

HEIGHT_PX = 170
MAX_POOLS = 8
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """A figure of a pool from an instant to another; ``is_recorded`` unless it is a mean."""

    pool: Pool
    begin_at: datetime
    end_at: datetime
    value: float
    is_recorded: bool = True


def price_plot(run: RunView) -> ResponsiveChart | None:
    """Dollars per node-hour of the pools in use; None where no node was launched."""
    rates = list(_prices(run))
    pools = list(dict.fromkeys(rate.pool for rate in rates))
    colours = pool_colours(run)
    legend = tuple(LegendEntry("line", colours[p], pool_label(p)) for p in pools[:MAX_POOLS])
    return _plot(run, rates, usd_per_hour_text, "Dollars per node-hour", legend)


def carbon_plot(run: RunView) -> ResponsiveChart | None:
    """gCO2e per kWh where nodes ran, by hour where that was recorded; None where unknown."""
    rates = list(_intensities(run))
    legend = (
        LegendEntry("line", "ink", "the hour's, as recorded"),
        LegendEntry("dash", "ink", "the region's annual mean"),
    )
    kinds = {rate.is_recorded for rate in rates}
    shown = tuple(entry for entry, kind in zip(legend, (True, False), strict=True) if kind in kinds)
    return _plot(run, rates, number_text, "gCO2e per kWh", shown)


def _prices(run: RunView) -> Iterator[Rate]:
    """Each node's price from its launch on; a change counts for all nodes of its pool."""
    launched = {e.node_id: e for e in run.events if isinstance(e, NodeLaunched)}
    changes = [event for event in run.events if isinstance(event, PriceChanged)]
    for row in run.intervals:
        end_at = row.ended_at or run.now
        steps = [(row.launched_at, launched[row.node_id].micros_per_hour)]
        steps += [
            (each.at, each.micros_per_hour)
            for each in changes
            if each.pool == str(row.pool) and row.launched_at < each.at < end_at
        ]
        ends = [*(at for at, _ in steps[1:]), end_at]
        for (begin_at, micros), until in zip(steps, ends, strict=True):
            yield Rate(row.pool, begin_at, until, micros / 1e6)


def _intensities(run: RunView) -> Iterator[Rate]:
    launched = {e.node_id: e for e in run.events if isinstance(e, NodeLaunched)}
    recorded = {
        (event.region, event.carbon_signal, event.hour_at): event.gco2e_per_kwh
        for event in run.events
        if isinstance(event, CarbonIntensityRecorded)
    }
    for row in run.intervals:
        mean = launched[row.node_id].gco2e_per_kwh
        signal = launched[row.node_id].carbon_signal or CarbonSignal.AVERAGE
        region = f"{row.pool.provider}/{row.pool.region}"
        for begin_at, end_at in _hours(row, run.now):
            hour_at = begin_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            known = recorded.get((region, signal, hour_at))
            value = mean if known is None else known
            if value is not None:
                yield Rate(row.pool, begin_at, end_at, value, is_recorded=known is not None)


def _hours(row: NodeInterval, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The node's time, cut at whole hours."""
    at, end_at = row.launched_at, row.ended_at or now
    while at < end_at:
        whole = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
        yield at, min(whole, end_at)
        at = whole


def _plot(
    run: RunView,
    rates: Sequence[Rate],
    text: Callable[[float], str],
    title: str,
    legend: tuple[LegendEntry, ...],
) -> ResponsiveChart | None:
    if not rates:
        return None
    axis, colours = TimeAxis.of(run), pool_colours(run)
    values = [rate.value for rate in rates]
    high = 1.12 * max(1e-9, *values)
    y = value_axis(high, lambda value: text(value).removesuffix("/h"), 4)
    marks: list[Mark] = [
        Line(
            ((axis.place(rate.begin_at), rate.value), (axis.place(rate.end_at), rate.value)),
            colours[rate.pool],
            3,
            () if rate.is_recorded else (9.0, 4.5),
        )
        for rate in dict.fromkeys(rates)
    ]
    marks = [*axis.deadline_marks(y), *marks]
    alt = f"{title} while nodes ran: from {text(min(values))} to {text(max(values))}."
    return draw_chart(
        lambda narrow: make_drawing(narrow, HEIGHT_PX, axis.ticked(narrow), y, marks), alt, legend
    )
