"""A backtest's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from costopt.backtesting.ranking import PolicySummary
from costopt.formatting import usd_text, whole_percent_text
from costopt.render.backtest_charts import (
    BacktestCurve,
    CostBar,
    cost_bars,
    mode_bars,
    progress_curves,
    spend_curves,
)
from costopt.render.backtest_table import backtest_table
from costopt.render.html import render_page, require_report_extra, write_page
from costopt.render.table import Table

_HOW = (
    (
        "Runs",
        "The engine that launches nodes, replayed over recorded or generated markets: every "
        "strategy saw the same markets and knew nothing of their future, but for the optimum and "
        "the oracle.",
    ),
    ("Dollars", "Price × time of every node. Modelled: no node was rented."),
    (
        "Energy, CO2e",
        "Modelled from the catalogue's power figures and each region's intensity; unknown where "
        "a node's power is.",
    ),
    (
        "× hindsight",
        "Dollars against the cheapest schedule that knew the whole market beforehand; 1.00 cannot "
        "be beaten. In brackets, the interval that holds the ratio with 95 %, by paired bootstrap "
        "over the windows; windows that overlap are alike, so the true one is wider.",
    ),
    (
        "Interruptions, moves",
        "Nodes that the provider took, and gangs formed in other pools, per run.",
    ),
    ("Lost work", "Work that was done, not saved, and done again."),
)


def write_backtest_report(
    standings: Sequence[PolicySummary],
    curves: Mapping[str, BacktestCurve],
    path: Path | str,
    *,
    coverage: Sequence[str] = (),
    decisions: Sequence[Table] = (),
    now: datetime | None = None,
    title: str = "Backtest",
) -> Path:
    """Write the comparison as one self-contained HTML file.

    ``curves`` holds the curves of one run per strategy, and may be empty; ``coverage`` says what
    part of each record the windows lie in, ``decisions`` why a strategy did what it did. Raises
    MissingExtraError, and StoreError where the file cannot be written.
    """
    require_report_extra()
    rows = CostBar.of(standings)
    drawn = {name: curve for name, curve in curves.items() if curve.spend_usd and curve.done}
    page = render_page(
        "backtest.html.j2",
        title=title,
        made_at=now or datetime.now(UTC),
        lead=_lead(rows),
        bars=cost_bars(rows),
        curves=spend_curves(drawn) if drawn else None,
        progress=progress_curves(drawn) if drawn else None,
        modes=mode_bars(drawn) if drawn else None,
        table=backtest_table(standings),
        decisions=decisions,
        how=(*_HOW, *(("Coverage", text) for text in coverage)),
    )
    return write_page(Path(path), page)


def _lead(rows: Sequence[CostBar]) -> str:
    blind = [row for row in rows if not row.oracle]
    kept = [row for row in blind if row.misses == 0]
    if not kept:
        return "No strategy kept every deadline." if blind else "There are no runs to compare."
    best = min(kept, key=lambda row: row.mean_usd)
    dearest = max(blind, key=lambda row: row.mean_usd)
    sentence = f"{best.strategy} kept every deadline for {usd_text(best.mean_usd)} on average"
    if dearest is best or dearest.mean_usd <= 0:
        return f"{sentence}."
    less = whole_percent_text(1 - best.mean_usd / dearest.mean_usd)
    return f"{sentence}, {less} less than {dearest.strategy}."
