"""A backtest's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.formatting import UNKNOWN_TEXT, gco2e_text, seconds_text, usd_text, wh_text
from costopt.render.table import Table

REPORT_COLUMNS = (
    "strategy",
    "$ mean",
    "$ P50",
    "$ P95",
    "energy",
    "CO2e",
    "finish",
    "misses",
    "taken",
    "moves",
    "lost work",
    "× hindsight",
    "runs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """One strategy over ``runs`` runs: means unless the name says otherwise; None is unknown.

    ``finish_s`` counts from the start of the job over the runs that finished, ``misses`` the runs
    that did not by their deadline, ``lost_s`` seconds of work that were done twice, and
    ``hindsight_ratio`` dollars against the optimum that knew the market beforehand, which lies with
    95 % between ``hindsight_low`` and ``hindsight_high``. An ``oracle`` knew something of the
    future.
    """

    strategy: str
    runs: int
    mean_usd: float
    p50_usd: float
    p95_usd: float
    kwh: float | None
    gco2e: float | None
    finish_s: float | None
    misses: int
    interruptions: float | None
    switches: float | None
    lost_s: float | None
    hindsight_ratio: float | None
    hindsight_low: float | None = None
    hindsight_high: float | None = None
    oracle: bool = False


def backtest_table(rows: Sequence[BacktestRow], title: str = "Backtest") -> Table:
    """One row per strategy, in the order given."""
    return Table(
        title,
        REPORT_COLUMNS,
        tuple(_cells(row) for row in rows),
        frozenset(range(1, len(REPORT_COLUMNS))),
    )


def _cells(row: BacktestRow) -> tuple[str, ...]:
    return (
        row.strategy,
        usd_text(row.mean_usd),
        usd_text(row.p50_usd),
        usd_text(row.p95_usd),
        wh_text(None if row.kwh is None else row.kwh * 1000),
        gco2e_text(row.gco2e),
        seconds_text(row.finish_s),
        f"{row.misses} of {row.runs}",
        UNKNOWN_TEXT if row.interruptions is None else f"{row.interruptions:.1f}",
        UNKNOWN_TEXT if row.switches is None else f"{row.switches:.1f}",
        seconds_text(row.lost_s),
        _ratio(row),
        str(row.runs),
    )


def _ratio(row: BacktestRow) -> str:
    if row.hindsight_ratio is None:
        return UNKNOWN_TEXT
    if row.hindsight_low is None or row.hindsight_high is None:
        return f"{row.hindsight_ratio:.3f}"
    return f"{row.hindsight_ratio:.3f} [{row.hindsight_low:.3f}, {row.hindsight_high:.3f}]"
