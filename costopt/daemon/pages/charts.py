"""The charts of all jobs: dollars and kilowatt-hours per day by tenant, and jobs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from costopt.daemon.lists import is_over
from costopt.daemon.pages.layout import ChartCache
from costopt.daemon.reader import TenantReader
from costopt.daemon.shared_state import JobStatus
from costopt.daemon.watch.cost_history import CostHistory, DayCost, Span
from costopt.domain.estimate import sum_of_known
from costopt.formatting import pluralize, usd_text, wh_text
from costopt.ledger.job_query import ENDED
from costopt.ledger.summary import JobState
from costopt.render.drawing import (
    POOL_COLOURS,
    Axis,
    Drawing,
    Line,
    Mark,
    Rectangle,
    Text,
    VerticalLine,
    make_drawing,
    value_axis,
)
from costopt.render.page import Plot
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart

DAYS_SHOWN = 14
JOBS_DRAWN = 40
HEIGHT_PX = 200
UNKNOWN_POWER = "A ? marks a day with a node of unknown power."
OTHERS = "other tenants"
Days = Sequence[date]
ByTenant = Mapping[str, Sequence[float | None]]


def daily_plots(
    charts: ChartCache, reader: TenantReader, statuses: Sequence[JobStatus], key: str
) -> tuple[Plot, ...]:
    """Return dollars and kilowatt-hours per day by tenant; () if nothing was spent. ``key`` names
    the jobs among the reader's. May raise LedgerError."""
    return charts.keep(("daily", reader.tenant, key), lambda: _daily(reader, statuses))


def _daily(reader: TenantReader, statuses: Sequence[JobStatus]) -> tuple[Plot, ...]:
    now = reader.fleet().now.astimezone(UTC)
    days = [now.date() - timedelta(days=ago) for ago in range(DAYS_SHOWN - 1, -1, -1)]
    history = reader.cost_history(statuses, datetime.combine(days[0], datetime.min.time(), UTC))
    first = min((day for costs in history.jobs.values() for day in costs.days), default=days[-1])
    days = [day for index, day in enumerate(days) if day >= first or index >= DAYS_SHOWN // 2]
    usd = _by_tenant(statuses, history, days, lambda cost: cost.usd_micros / 1e6)
    wh = _by_tenant(statuses, history, days, lambda cost: cost.wh)
    if not any(any(row) for row in usd.values()):
        return ()
    order = sorted(usd, key=lambda tenant: (-sum(v or 0.0 for v in usd[tenant]), tenant))
    spent = _bars(days, _largest(usd, order), usd_text, _usd_tick)
    drawn = _bars(days, _largest(wh, order), wh_text, lambda wh: f"{wh / 1000:g}")
    lead = f"The last {len(days)} days (UTC), today's so far."
    if history.unread:
        lead += f" {pluralize(history.unread, 'job')} not read yet; the next tick's page has more."
    return (
        Plot("daily-usd", "Dollars per day", lead, spent),
        Plot("daily-wh", "Energy per day in kWh", f"{lead} {UNKNOWN_POWER}", drawn),
    )


def _usd_tick(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 10 or usd == 0 else f"${usd:,.2f}"


def _by_tenant(
    statuses: Sequence[JobStatus],
    history: CostHistory,
    days: Days,
    figure: Callable[[DayCost], float | None],
) -> dict[str, list[float | None]]:
    """Return each tenant's figure by day; None where that of one of its jobs is unknown."""
    sums: dict[str, list[float | None]] = defaultdict(lambda: [0.0] * len(days))
    for status in statuses:
        costs = history.jobs.get(status.submission.name)
        for index, day in enumerate(days):
            cost = None if costs is None else costs.days.get(day)
            if cost is not None:
                _add(sums[status.submission.tenant], index, figure(cost))
    return sums


def _largest(rows: ByTenant, order: Sequence[str]) -> dict[str, list[float | None]]:
    """Return as many tenants as there are colours, in this order; the last ones as one."""
    if len(order) <= len(POOL_COLOURS):
        return {tenant: list(rows[tenant]) for tenant in order}
    shown = order[: len(POOL_COLOURS) - 1]
    merged = {tenant: list(rows[tenant]) for tenant in shown}
    merged[OTHERS] = [0.0] * len(rows[order[0]])
    for tenant in order[len(shown) :]:
        for index, value in enumerate(rows[tenant]):
            _add(merged[OTHERS], index, value)
    return merged


def _add(row: list[float | None], index: int, value: float | None) -> None:
    before = row[index]
    row[index] = None if before is None or value is None else before + value


def _bars(
    days: Days,
    by_tenant: ByTenant,
    text: Callable[[float | None], str],
    tick: Callable[[float], str],
) -> ResponsiveChart:
    totals = {tenant: sum_of_known(row) for tenant, row in by_tenant.items()}
    legend = tuple(
        LegendEntry("bar", POOL_COLOURS[i], f"{tenant}: {text(total)}")
        for i, (tenant, total) in enumerate(totals.items())
    )
    alt = "; ".join(f"{tenant} {text(total)}" for tenant, total in totals.items())
    alt = f"Per day and tenant. In all: {alt}."
    return draw_chart(lambda narrow: _by_day(days, by_tenant, tick, narrow), alt, legend)


def _by_day(days: Days, by_tenant: ByTenant, tick: Callable[[float], str], narrow: bool) -> Drawing:
    marks: list[Mark] = []
    base = [0.0] * len(days)
    for row, colour in zip(by_tenant.values(), POOL_COLOURS, strict=False):
        for index, value in enumerate(row):
            start, end = (index - 0.36, base[index]), (index + 0.36, base[index] + (value or 0.0))
            marks += [Rectangle(start, end, colour)] if value else []
            base[index] = end[1]
    for index, column in enumerate(zip(*by_tenant.values(), strict=True)):
        if None in column:
            at = (float(index), base[index])
            marks.append(Text("?", at, "bad", "middle", offset_px=(0.0, -4.0)))
    shown = range(len(days) - 1, -1, -4 if narrow else -1)
    ticks = tuple((float(index), f"{days[index]:%b %-d}") for index in shown)
    x, y = Axis(-0.6, len(days) - 0.4, ticks), value_axis(1.12 * max(*base, 1e-9), tick, 4)
    return make_drawing(narrow, HEIGHT_PX, x, y, marks, 72.0)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's line in the chart of jobs: from its start to its end, real or planned."""

    name: str
    start_at: datetime
    end_at: datetime | None
    planned_at: datetime | None
    deadline_at: datetime | None
    spans: tuple[Span, ...]
    colour: str


def jobs_plot(
    charts: ChartCache, reader: TenantReader, statuses: Sequence[JobStatus], key: str
) -> tuple[Plot, ...]:
    """Return the chart of jobs over time; () if there is none to draw. May raise LedgerError."""
    return charts.keep(("jobs", reader.tenant, key), lambda: _jobs(reader, statuses))


def _jobs(reader: TenantReader, statuses: Sequence[JobStatus]) -> tuple[Plot, ...]:
    now = reader.fleet().now
    known = [s for s in statuses if s.summary.deadline_at is not None]
    newest = sorted(known, key=lambda s: (is_over(s), -_begun(s).timestamp()))[:JOBS_DRAWN]
    if not newest:
        return ()
    history = reader.cost_history(newest, now - timedelta(days=DAYS_SHOWN))
    rows = [_row(status, history) for status in newest]
    rows.sort(key=lambda row: (row.start_at, row.name))
    lead = "When jobs had nodes, when they are expected to finish, and their deadlines (UTC)."
    if len(known) > len(newest):
        lead += f" {len(known) - len(newest)} older ones are not drawn."
    return (Plot("jobs-over-time", "Jobs over time", lead, _gantt(rows, now)),)


def _begun(status: JobStatus) -> datetime:
    return status.summary.start_at or status.submission.submitted_at


def _row(status: JobStatus, history: CostHistory) -> JobRow:
    summary = status.summary
    costs = history.jobs.get(summary.job)
    spans = () if costs is None else costs.spans
    over = is_over(status)
    end_at = summary.finished_at
    if over and end_at is None:
        end_at = spans[-1][1] if spans else _begun(status)
    bad = summary.on_time is False or summary.state is JobState.FAILED
    done = summary.state in ENDED
    made = status.forecast
    expected_at = status.finish_at_pace or status.safest_finish_at
    if made is not None:
        expected_at = made.finish_p50_at
    return JobRow(
        name=summary.job,
        start_at=_begun(status),
        end_at=end_at,
        planned_at=None if over else expected_at,
        deadline_at=summary.deadline_at,
        spans=spans,
        colour="bad" if bad else "saved" if done else "muted" if over else "done",
    )


def _gantt(rows: Sequence[JobRow], now: datetime) -> ResponsiveChart:
    done = sum(row.end_at is not None for row in rows)
    legend = (
        LegendEntry("bar", "done", "open, with nodes"),
        LegendEntry("bar", "saved", "finished in time"),
        LegendEntry("bar", "bad", "late or failed"),
        LegendEntry("tint", "ink", "without nodes"),
        LegendEntry("dash", "done", "to come: by its forecast, before one is made at its pace"),
        LegendEntry("tick", "bad", "deadline"),
        LegendEntry("line", "note", "now"),
    )
    alt = (
        f"{pluralize(len(rows), 'job')} over time, {done} of them over. The tables below hold "
        "their deadlines and states."
    )
    return draw_chart(lambda narrow: _over_time(rows, now, narrow), alt, legend)


NAME_PX = 17
BAR_PX = 20
AXIS_PX = 62
NAME_LENGTH = 26


TICK_HOURS = (1, 2, 3, 6, 12, 24, 48, 96, 168)


def _over_time(rows: Sequence[JobRow], now: datetime, narrow: bool) -> Drawing:
    """Names stand to the left of the bars; above them where the page is narrow."""
    row_px = BAR_PX + (NAME_PX if narrow else 0)
    most = timedelta(days=DAYS_SHOWN)
    begins = max(min(now, *(row.start_at for row in rows)), now - most)
    # an ended job's deadline, if far ahead, would squeeze what happened
    ends = [at for row in rows for at in (row.end_at or row.deadline_at, row.planned_at) if at]
    until = min(max(now, *ends), now + most)
    x, y = _hours_axis(begins, until, 4 if narrow else 9), Axis(float(row_px * len(rows)), 0.0)
    place = _hours_since(begins)
    marks: list[Mark] = []
    for index, row in enumerate(rows):
        name = row.name if len(row.name) <= NAME_LENGTH else f"{row.name[: NAME_LENGTH - 1]}…"
        top = float(index * row_px)
        if narrow:
            marks.append(Text(name, (x.low, top + NAME_PX / 2), "ink", offset_px=(0.0, 4.0)))
            top += NAME_PX
        else:
            at = (x.low, top + BAR_PX / 2)
            marks.append(Text(name, at, "ink", "end", offset_px=(-8.0, 4.0)))
        marks += _row_marks(row, top, place, now)
    marks.append(VerticalLine(place(now), "note"))
    return make_drawing(narrow, AXIS_PX + y.low, x, y, marks, 210.0)


def _hours_since(begins: datetime) -> Callable[[datetime], float]:
    return lambda at: (at - begins) / timedelta(hours=1)


def _hours_axis(begins: datetime, until: datetime, most: int) -> Axis:
    """Return an axis of times in UTC, with at most so many marks."""
    hours = max(_hours_since(begins)(until), 1.0)
    step = next((each for each in TICK_HOURS if hours / each <= most), TICK_HOURS[-1])
    midnight = begins.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    count = int(_hours_since(midnight)(until) // step)
    marks = [midnight + timedelta(hours=step * index) for index in range(count + 1)]
    ticks = tuple(
        (_hours_since(begins)(at), f"{at:%H:%M}" if at.hour else f"{at:%b %-d}")
        for at in marks
        if at >= begins
    )
    return Axis(-hours / 50, hours * 1.02, ticks, grid=True)


def _row_marks(
    row: JobRow, top: float, place: Callable[[datetime], float], now: datetime
) -> Iterator[Mark]:
    above, below = top + 4, top + BAR_PX - 4
    start, present = place(row.start_at), place(max(now, row.start_at))
    end = present if row.end_at is None else place(row.end_at)
    yield Rectangle((start, above), (end, below), row.colour, 0.25)
    for begun, ended in row.spans:
        yield Rectangle((place(begun), above), (place(ended), below), row.colour)
    if row.planned_at is not None and place(row.planned_at) > present:
        middle = top + BAR_PX / 2
        yield Line(((present, middle), (place(row.planned_at), middle)), row.colour, 2, (6.0, 4.0))
    if row.deadline_at is not None:
        due = place(row.deadline_at)
        yield Line(((due, top + 1), (due, top + BAR_PX - 1)), "bad", 2.5)
