"""A backtest's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from costopt.backtesting.grid import BacktestGrid
from costopt.backtesting.ranking import (
    PairedDifference,
    PolicySummary,
    paired_differences,
    window_costs,
)
from costopt.backtesting.trial import HINDSIGHT, BacktestConfig, Score, Trial
from costopt.domain.estimate import Estimate
from costopt.domain.events import DecisionMade
from costopt.formatting import pluralize, probability_text, usd_text, whole_percent_text
from costopt.ledger.run_view import RunView
from costopt.render.html import render_page, require_report_extra, write_page
from costopt.render.reports.backtest_charts import (
    BacktestCurve,
    CostBar,
    cost_bars,
    curve_of_moments,
    curve_of_run,
    drawable,
    mode_bars,
    progress_curves,
    spend_curves,
)
from costopt.render.table import Table
from costopt.views.backtest import (
    backtest_table,
    carbon_note,
    coverage_note,
    differences_table,
    history_note,
    undefined_note,
)
from costopt.views.decision import decision_table

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
    scores: Sequence[tuple[Trial, Score]] = (),
    now: datetime | None = None,
    title: str = "Backtest",
) -> Path:
    """Write the comparison as one self-contained HTML file.

    ``curves`` holds the curves of one run per strategy, and may be empty; ``coverage`` says what
    part of each record the windows lie in, ``decisions`` why a strategy did what it did, ``scores``
    are those of single windows, which the distribution and the paired differences need. Raises
    MissingExtraError, and StoreError where the file cannot be written.
    """
    require_report_extra()
    found = window_costs(scores)
    costs = {each.policy: found[each.policy] for each in standings if each.policy in found}
    rows = CostBar.of(standings, {label: each.values() for label, each in costs.items()})
    best = _best(rows)
    differences = paired_differences(costs, best.strategy) if best is not None else []
    drawn = drawable(curves)
    page = render_page(
        "backtest.html.j2",
        title=title,
        made_at=now or datetime.now(UTC),
        lead=_lead(rows, best, differences),
        differences=differences_table(differences) if differences else None,
        bars=cost_bars(rows),
        curves=spend_curves(drawn) if drawn else None,
        progress=progress_curves(drawn) if drawn else None,
        modes=mode_bars(drawn) if drawn else None,
        table=backtest_table(standings),
        decisions=decisions,
        how=(*_HOW, *(("Coverage", text) for text in coverage)),
    )
    return write_page(Path(path), page)


def _best(rows: Sequence[CostBar]) -> CostBar | None:
    """The cheapest that kept every deadline without knowing the future."""
    kept = [row for row in rows if not row.oracle and row.misses == 0]
    return min(kept, key=lambda row: row.mean_usd, default=None)


def _lead(
    rows: Sequence[CostBar], best: CostBar | None, differences: Sequence[PairedDifference]
) -> str:
    """Who kept the deadlines, for how much against what, and how sure the first place is."""
    blind = [row for row in rows if not row.oracle]
    if best is None:
        return "No strategy kept every deadline." if blind else "There are no runs to compare."
    dearest = max(blind, key=lambda row: row.mean_usd)
    late = probability_text(Estimate.of_share(0, best.runs, "windows"))
    sentence = (
        f"{best.strategy} kept every deadline of {pluralize(best.runs, 'window')} (P(late) {late}) "
        f"for {usd_text(best.mean_usd)} on average"
    )
    if dearest is not best and dearest.mean_usd > 0:
        less = whole_percent_text(1 - best.mean_usd / dearest.mean_usd)
        sentence += f", {less} less than {dearest.strategy}"
    unclear = [each.policy for each in differences if not (each.is_clear or each.is_equal)]
    if unclear:
        sentence += f"; these windows do not decide whether {', '.join(unclear)} cost more"
    return f"{sentence}."


def write_grid_report(
    standings: Sequence[PolicySummary],
    grid: BacktestGrid,
    bench: BacktestConfig,
    path: Path,
    scores: Sequence[tuple[Trial, Score]] = (),
) -> Path:
    """Write the report of a backtest, with curves and decisions of its first window.

    Raises as ``write_backtest_report``.
    """
    require_report_extra()
    curves, decisions = first_window(grid, bench)
    notes = [*map(coverage_note, grid.coverages), *undefined_note(standings)]
    notes += (*carbon_note(standings), *history_note(bench.history_s))
    return write_backtest_report(
        standings, curves, path, coverage=notes, decisions=decisions, scores=scores
    )


def first_window(
    grid: BacktestGrid, bench: BacktestConfig
) -> tuple[dict[str, BacktestCurve], list[Table]]:
    """Replay the first window; return curves by policy, and tables of explained decisions."""
    curves: dict[str, BacktestCurve] = {}
    decisions: list[Table] = []
    for policy in grid.policies:
        trial = Trial(grid.windows[0], policy)
        if policy.strategy.name == HINDSIGHT:
            curves |= _optimum(bench, trial)
            continue
        run = _run(bench, trial)
        curves[trial.label] = curve_of_run(run)
        made = [event for event in run.events if isinstance(event, DecisionMade)]
        if any(event.alternatives for event in made):
            title = f"Decisions of {trial.label} in the first window"
            decisions.append(decision_table(made, run.begun_at, title))
    return curves, decisions


def _run(bench: BacktestConfig, trial: Trial) -> RunView:
    done = bench.rehearse(trial, explain=True)
    return RunView.of((recorded.event for recorded in done.events), done.summary.now)


def _optimum(bench: BacktestConfig, trial: Trial) -> dict[str, BacktestCurve]:
    """Return the hindsight optimum's curve by its label; empty if it is not defined."""
    best = bench.optimum(trial)
    if best is None:
        return {}
    return {trial.label: curve_of_moments(best.moments, trial.window.job.work.amount)}
