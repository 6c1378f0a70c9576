"""What a run was planned to cost, hour by hour, beside what it did cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from costopt.domain.events import Event, PlanMade
from costopt.formatting import minute_text, usd_micros_text, wh_text
from costopt.ledger.summary import SpendPoint, spend_at
from costopt.render.table import Column, Row, Table

HOUR = timedelta(hours=1)

COLUMNS = (
    Column("hour", "Hour from", minute_text),
    Column("planned_micros", "Planned", usd_micros_text, right=True),
    Column("spent_micros", "Spent", usd_micros_text, right=True),
    Column("planned_wh", "Planned energy", wh_text, right=True),
    Column("spent_wh", "Energy", wh_text, right=True),
    Column("prices", "Prices of limits"),
)


def planned_table(events: Iterable[Event], spend: Sequence[SpendPoint], until: datetime) -> Table:
    """Return a row per hour until ``until``, by the newest plan made before the hour began; no row
    without a plan. Of the first hour the plan is the first one.

    Data moved and stored is spent, too, and is in no plan.
    """
    plans = [event for event in events if isinstance(event, PlanMade)]
    times = [point.at for point in spend]
    rows: list[Row] = []
    if plans:
        hour_at = plans[0].from_at
        while hour_at < until:
            rows.append(_row(hour_at, plans, spend, times))
            hour_at += HOUR
    return Table("costopt.planned/1", "Planned and spent", COLUMNS, rows)


def _row(
    hour_at: datetime,
    plans: Sequence[PlanMade],
    spend: Sequence[SpendPoint],
    times: Sequence[datetime],
) -> Row:
    plan = max((p for p in plans if p.at <= hour_at), key=lambda p: p.at, default=plans[0])
    number = (hour_at - plan.from_at) // HOUR
    holds = number < len(plan.usd_micros)
    prices = [(name, by_hour[number]) for name, by_hour in plan.prices if number < len(by_hour)]
    begin, end = spend_at(spend, times, hour_at), spend_at(spend, times, hour_at + HOUR)
    known = begin.wh is not None and end.wh is not None
    return {
        "hour": hour_at,
        "planned_micros": plan.usd_micros[number] if holds else 0,
        "spent_micros": end.usd_micros - begin.usd_micros,
        "planned_wh": plan.wh[number] if holds else 0.0,
        "spent_wh": end.wh - begin.wh if known else None,  # type: ignore[operator]
        "prices": "\n".join(f"{name} ${usd:.4g}" for name, usd in prices if usd),
    }
