"""A node: a living one, as the daemon's API answers it, and one from launch to end, of a ledger."""

from __future__ import annotations

from datetime import datetime

from costopt.formatting import (
    kwh_text,
    minute_text,
    pool_text,
    second_text,
    seconds_text,
    usd_per_hour_text,
    usd_text,
)
from costopt.render.table import Column
from costopt.views.job import job_path

NODE_COLUMNS = (
    Column("node_id", "Node"),
    Column("job", "Job", link=job_path),
    Column("tenant", "Tenant"),
    Column("pool", "Pool", pool_text),
    Column("state", "State"),
    Column("launched_at", "Launched", minute_text, rank=2),
    Column("usd_per_hour", "Price", usd_per_hour_text, right=True),
    Column("draining", "Draining", lambda is_so: "draining" if is_so else "", rank=1, tone="note"),
    Column("interrupts_at", "Interrupted at", second_text, unknown="", tone="bad"),
    Column("health", "Health", unknown="", tone="bad"),
)
"""Columns of living nodes."""
ORPHAN_COLUMNS = (Column("node_id", "Node", tone="bad"),)
TENANT_COLUMNS = (
    Column("tenant", "Tenant"),
    Column("jobs", "Jobs", right=True),
    Column("nodes", "Nodes", right=True),
    Column("usd_per_hour", "Price", usd_per_hour_text, right=True),
)
"""Columns of what a tenant's living nodes are together."""


def _kilo(wh: float | None) -> float | None:
    return None if wh is None else wh / 1000


INTERVAL_COLUMNS = (
    Column("node_id", "Node"),
    Column("pool", "Pool", pool_text),
    Column("launched_at", "Launched", second_text),
    Column("ended_at", "Ended", second_text),
    Column("cause", "Cause", detail=True),
    Column(
        "outcome", "End reason", for_people=True,
        tone=lambda node: "bad" if node.cause and node.cause.is_unplanned else "plain",
    ),
    Column("usd", "Cost", usd_text, right=True, value=lambda node: node.usd_micros / 1e6),
    Column("kwh", "Energy", kwh_text, right=True, value=lambda node: _kilo(node.wh)),
    Column("busy_kwh", "Training", detail=True, value=lambda node: _kilo(node.busy_wh)),
    Column("idle_kwh", "Not training", detail=True, value=lambda node: _kilo(node.idle_wh)),
    *(
        Column(key, key, detail=True)
        for key in ("gco2e", "market_based_gco2e", "energy_basis", "carbon_basis", "noticed_at")
    ),
)  # fmt: skip
"""Columns of a run's nodes; a row is a NodeInterval."""


def columns_until(now: datetime) -> tuple[Column, ...]:
    """Return the columns of a run's nodes for people, with how long each lasted until ``now``."""
    lasted = Column(
        "lasted_s", "Duration", seconds_text, right=True,
        value=lambda node: ((node.ended_at or now) - node.launched_at).total_seconds(),
    )  # fmt: skip
    shown = [column for column in INTERVAL_COLUMNS if not column.detail]
    return (*shown[:-2], lasted, *shown[-2:])
