"""The report of a backtest: the policies' results, and the curves of its first window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costopt.backtesting.grid import BacktestGrid
from costopt.backtesting.hindsight import hindsight_optimum
from costopt.backtesting.ranking import PolicySummary
from costopt.backtesting.trial import HINDSIGHT, BacktestConfig, Trial
from costopt.domain.events import DecisionMade
from costopt.render.backtest_charts import BacktestCurve, curve_of_moments, curve_of_run
from costopt.render.backtest_report import write_backtest_report
from costopt.render.backtest_table import (
    carbon_note,
    coverage_note,
    history_note,
    undefined_note,
)
from costopt.render.run_tables import RunView, decision_table
from costopt.render.table import Table


def write_report(
    standings: Sequence[PolicySummary], grid: BacktestGrid, bench: BacktestConfig, path: Path
) -> None:
    """Write the page; the first window is replayed once more for its curves and decisions."""
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
    notes = [*map(coverage_note, grid.coverages), *undefined_note(standings)]
    notes += (*carbon_note(standings), *history_note(bench.history_s))
    write_backtest_report(standings, curves, path, coverage=notes, decisions=decisions)


def _run(bench: BacktestConfig, trial: Trial) -> RunView:
    done = bench.rehearse(trial, explain=True)
    return RunView.of((recorded.event for recorded in done.events), done.summary.now)


def _optimum(bench: BacktestConfig, trial: Trial) -> dict[str, BacktestCurve]:
    """Return the hindsight optimum's curve by its label; empty if it is not defined."""
    job, market = trial.window.job, bench.markets[trial.window.market]
    best = hindsight_optimum(job, trial.policy, market, bench.machines, with_moments=True)
    return {} if best is None else {trial.label: curve_of_moments(best.moments, job.work.amount)}
