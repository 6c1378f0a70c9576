"""The plans of a frontier side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.estimate import Estimate
from costopt.formatting import (
    gco2e_text,
    kwh_text,
    minute_text,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.report.table import Table

COLUMNS = ("plan", "$", "energy", "CO2e", "takes", "finish P50", "P(on time)", "pools")
NUMERIC = frozenset(range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow:
    """One plan: means of dollars and kWh, CO2e in grams; energy and CO2e None where unknown.

    ``takes_s`` counts from now to the median finish; ``on_time`` is a probability. ``chosen``: the
    policy's own plan.
    """

    usd: float
    kwh: float | None
    gco2e: float | None
    takes_s: float
    finish_p50_at: datetime
    on_time: Estimate
    pools: tuple[str, ...]
    chosen: bool = False


def frontier_table(rows: Sequence[FrontierRow]) -> Table:
    """One row per plan, in the order given, numbered from 1; the chosen one stands out."""
    cells = tuple(_cells(number, row) for number, row in enumerate(rows, start=1))
    chosen = frozenset(index for index, row in enumerate(rows) if row.chosen)
    return Table("Frontier", COLUMNS, cells, NUMERIC, chosen)


def _cells(number: int, row: FrontierRow) -> tuple[str, ...]:
    return (
        str(number),
        usd_text(row.usd),
        kwh_text(row.kwh),
        gco2e_text(row.gco2e),
        seconds_text(row.takes_s),
        minute_text(row.finish_p50_at),
        probability_text(row.on_time),
        ",\n".join(row.pools),
    )
