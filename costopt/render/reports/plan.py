"""A plan's page: its hours drawn, above its table."""

from __future__ import annotations

from costopt.domain.plan import Allocation, Plan
from costopt.formatting import pool_text
from costopt.render.page import Plot
from costopt.render.reports.pool_hours import PoolInterval, hours_since, pool_bars
from costopt.render.table import Table
from costopt.render.writers import to_html


def plan_page(made: Plan, table: Table) -> str:
    """Return the table of a plan, under where it runs by hour, as one self-contained document."""
    rows: dict[str, list[PoolInterval]] = {}
    for each in made.allocations:
        interval = PoolInterval(
            each.pool,
            hours_since(made.made_at, each.start_at),
            hours_since(made.made_at, each.end_at),
        )
        rows.setdefault(_label(each), []).append(interval)
    if not rows:
        return to_html(table)
    text = "Nodes of each pool by hour, from the instant of the plan, if it were followed."
    return to_html(table, (Plot("hours", "The plan by hour", text, pool_bars(rows)),))


def _label(allocation: Allocation) -> str:
    return f"{allocation.nodes} × {pool_text(allocation.pool)}"
