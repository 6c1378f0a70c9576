"""Where something runs, hour by hour: a bar per row and stay in a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.market import Pool
from costopt.render.drawing import (
    POOL_COLOURS,
    Axis,
    Drawing,
    Mark,
    Rectangle,
    Text,
    hours_axis,
    make_drawing,
)
from costopt.render.reports.run_charts import pool_label
from costopt.render.svg import LegendEntry, ResponsiveChart, draw_chart

BAR_PX = 52
"""The height of a row, with its name."""


@dataclass(frozen=True, slots=True)
class PoolInterval:
    """From hour to hour in a pool."""

    pool: Pool
    begin_h: float
    end_h: float


def hours_since(begun_at: datetime, at: datetime) -> float:
    """Return the hours from one instant to another."""
    return (at - begun_at).total_seconds() / 3600


def pool_bars(rows: Mapping[str, Sequence[PoolInterval]]) -> ResponsiveChart:
    """Return a row per name; nothing drawn is waiting."""
    pools = list(dict.fromkeys(each.pool for row in rows.values() for each in row))
    spot = [pool for pool in pools if pool.capacity_type.is_interruptible]
    colours = {
        pool: POOL_COLOURS[spot.index(pool) % len(POOL_COLOURS)] if pool in spot else "firm"
        for pool in pools
    }
    legend = tuple(LegendEntry("bar", colours[pool], pool_label(pool)) for pool in pools)
    hours = ", ".join(
        f"{name} {sum(each.end_h - each.begin_h for each in row):.1f} h in "
        f"{len({each.pool for each in row})} pools"
        for name, row in rows.items()
    )
    alt = f"Where each ran: {hours}."
    return draw_chart(lambda narrow: _draw(rows, colours, narrow), alt, legend)


def row_name(name: str, index: int) -> Text:
    """Return the name of a row, above its bar."""
    return Text(name, (0.0, index + 0.31), "ink", offset_px=(0.0, 5.0), size_px=13.0)


def _draw(
    rows: Mapping[str, Sequence[PoolInterval]], colours: Mapping[Pool, str], narrow: bool
) -> Drawing:
    marks: list[Mark] = []
    for index, (name, row) in enumerate(rows.items()):
        for each in row:
            start, end = (each.begin_h, index + 0.5), (each.end_h, index + 0.9)
            marks.append(Rectangle(start, end, colours[each.pool]))
        marks.append(row_name(name, index))
    high = 1.05 * max((each.end_h for row in rows.values() for each in row), default=1.0)
    height_px = 22 + 40 + BAR_PX * len(rows)
    return make_drawing(narrow, height_px, hours_axis(high), Axis(len(rows), 0.0), marks, 0.0)
