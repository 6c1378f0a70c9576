"""The replay of a fleet as a table: one set of columns for every output and for the report."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.backtesting.fleet.figures import PolicyFigures
from costopt.backtesting.fleet.sizing import FleetSize
from costopt.formatting import number_text, percent_text, seconds_text, usd_text
from costopt.render.table import Column, Row, Table


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


FLEET_COLUMNS = (
    Column("policy", "Policy"),
    Column("gpus", "GPUs", _whole, right=True),
    Column("mean_s", "Mean s", _whole, right=True),
    Column("static_ratio", "× static", _ratio, right=True),
    Column("completed_ratio", "completed", _ratio, right=True, rank=7),
    Column("p50_s", "P50 s", _whole, right=True, rank=3),
    Column("p95_s", "P95 s", _whole, right=True, rank=2),
    Column("p99_s", "P99 s", _whole, right=True, rank=2),
    Column("wait_s", "Wait", seconds_text, right=True, rank=5),
    Column("allocated_share", "Allocated", percent_text, right=True, rank=1),
    Column("gpu_hours", "GPU-hours", _whole, right=True, rank=3),
    Column("restarts_per_job", "Restarts/job", number_text, right=True, rank=6),
    Column("worst_tenant_ratio", "Worst tenant", _ratio, right=True, rank=1),
    Column("worst_tenant", "which", rank=8),
    Column("later_share", "Later", percent_text, right=True, rank=4),
    Column("usd", "$", usd_text, right=True, rank=7),
    Column("kwh", "kWh", number_text, right=True, rank=7),
    Column("jobs", "Jobs", detail=True),
    Column("completed_jobs", "Completed", detail=True),
    Column("tenant_ratios", "Tenants", detail=True),
    Column("switched_off", "Predictions off", detail=True),
)
MEANING = (
    "Times are from submission to end. × static: against the mean in the tenants' own partitions; "
    "completed: the same of jobs whose recorded state is so; Worst tenant: of one tenant. Later: "
    "jobs that end more than a tenth later than there. Allocated: the part of the GPUs that was "
    "held while jobs were submitted."
)


def fleet_table(figures: Sequence[PolicyFigures], title: str, notes: Sequence[str]) -> Table:
    """Return a row per policy, in the order given."""
    return Table(
        "costopt.fleet/1", title, FLEET_COLUMNS, figures,
        notes=(MEANING, *notes), facts={"notes": list(notes)},
    )  # fmt: skip


def tenants_table(figures: Sequence[PolicyFigures]) -> Table:
    """Return a row per tenant, with its mean completion time over that in its partition."""
    columns = [Column(each.policy, each.policy, _ratio, right=True) for each in figures]
    rows: list[Row] = [
        {"tenant": tenant, **{each.policy: each.tenant_ratios[tenant] for each in figures}}
        for tenant in figures[0].tenant_ratios
    ]
    return Table(
        "", "Mean completion time by tenant, against its own partition",
        (Column("tenant", "Tenant"), *columns), rows,
    )  # fmt: skip


def size_table(found: FleetSize, policy: str, static_gpus: int) -> Table:
    """Return the one row of the fewest GPUs that are enough."""
    columns = (
        Column("policy", "Policy"),
        Column("gpus", "GPUs", _whole, right=True),
        Column("static_gpus", "Partitions", _whole, right=True),
        Column("share", "of them", percent_text, right=True),
        Column("mean_s", "Mean s", _whole, right=True),
        Column("target_s", "Target s", _whole, right=True),
    )
    row = {
        "policy": policy,
        "gpus": found.gpus,
        "static_gpus": static_gpus,
        "share": found.gpus / static_gpus,
        "mean_s": found.mean_s,
        "target_s": found.target_s,
    }
    return Table("costopt.fleet-size/1", "Fewest GPUs that are enough", columns, [row])
