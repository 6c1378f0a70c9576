"""The frontier of a what-if: told in lines, as data and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.figures import mass, moment, number, pool_name, probability, usd
from costopt.cli.output import Row, Table, with_ends
from costopt.domain.job import Job
from costopt.domain.policy import Policy

if TYPE_CHECKING:
    from costopt.optimize.frontier import FrontierPoint

HEADER = ("$", "kWh", "CO2e", "Finish P50", "P(on time)", "Pools")


def frontier_row(point: FrontierPoint) -> Row:
    """A point as data; None is unknown."""
    return {
        "usd": point.usd,
        "kwh": point.kwh,
        "gco2e": point.forecast.gco2e,
        "finish_p50_at": point.forecast.finish_p50_at,
        "finish_p95_at": point.forecast.finish_p95_at,
        **with_ends("on_time", point.forecast.on_time),
        "pools": list(_pools(point)),
    }


def frontier_notes(policy: Policy, frontier: Sequence[FrontierPoint]) -> Iterator[str]:
    """A line per point under a line of names, in columns."""
    if not frontier:
        return
    yield f"Frontier under policy {policy.name} (expected dollars and kWh):"
    cells = [HEADER, *(_cells(point) for point in frontier)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for *figures, pools in cells:
        told = "  ".join(cell.rjust(width) for cell, width in zip(figures, widths, strict=False))
        yield f"  {told}  {pools}"


def check_report(path: Path) -> None:
    """What the report cannot do without is looked for before the plans are made.

    Raises MissingExtraError and UsageError.
    """
    from costopt.report.extra import require_report_extra

    require_report_extra()
    if not path.parent.is_dir():
        raise click.UsageError(f"--report {path}: there is no folder {path.parent}")


def write_report(
    scenarios: Table,
    frontier: Sequence[FrontierPoint],
    path: Path,
    *,
    job: Job,
    policy: Policy,
    now: datetime,
) -> None:
    """Frontier and scenarios as one HTML file. Raises StoreError where it cannot be written."""
    from costopt.report.frontier_table import FrontierRow
    from costopt.report.html import write_what_if_report
    from costopt.report.table import Table as PageTable

    columns = scenarios.shown_columns
    rows = tuple(
        tuple(column.shown(row.get(column.key)) for column in columns) for row in scenarios.rows
    )
    numeric = frozenset(index for index, column in enumerate(columns) if column.right)
    points = [
        FrontierRow(
            usd=point.usd,
            kwh=point.kwh,
            gco2e=point.forecast.gco2e,
            takes_s=(point.forecast.finish_p50_at - now).total_seconds(),
            finish_p50_at=point.forecast.finish_p50_at,
            on_time=point.forecast.on_time,
            pools=tuple(map(pool_name, _pools(point))),
        )
        for point in frontier
    ]
    table = PageTable(scenarios.title, tuple(column.title for column in columns), rows, numeric)
    title = f"What if: {job.name}"
    write_what_if_report(points, table, path, policy=policy.name, title=title)


def _pools(point: FrontierPoint) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(each.pool) for each in point.allocations))


def _cells(point: FrontierPoint) -> tuple[str, ...]:
    forecast = point.forecast
    return (
        usd(point.usd),
        number(point.kwh),
        mass(forecast.gco2e),
        moment(forecast.finish_p50_at),
        probability(forecast.on_time),
        ", ".join(map(pool_name, _pools(point))),
    )
