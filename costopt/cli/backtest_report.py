"""The report of a backtest: the standings, and the curves of its first window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costopt.cli.backtest_grid import Grid
from costopt.cli.backtest_table import (
    carbon_note,
    coverage_note,
    past_note,
    report_rows,
    undefined_note,
)
from costopt.domain.events import DecisionMade
from costopt.replay.hindsight import hindsight
from costopt.replay.ranking import Standing
from costopt.replay.trial import HINDSIGHT, Bench, Trial
from costopt.report.backtest_curve import BacktestCurve, curve_of_moments, curve_of_run
from costopt.report.decision_table import decision_table
from costopt.report.html import write_backtest_report
from costopt.report.run import Run
from costopt.report.table import Table


def write_report(standings: Sequence[Standing], grid: Grid, bench: Bench, path: Path) -> None:
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
    notes += (*carbon_note(standings), *past_note(bench.past_s))
    write_backtest_report(report_rows(standings), curves, path, coverage=notes, decisions=decisions)


def _run(bench: Bench, trial: Trial) -> Run:
    done = bench.rehearse(trial, explain=True)
    return Run.of((recorded.event for recorded in done.events), done.summary.now)


def _optimum(bench: Bench, trial: Trial) -> dict[str, BacktestCurve]:
    """The optimum's curve by its label; empty where it is not defined."""
    job, market = trial.window.job, bench.markets[trial.window.market]
    best = hindsight(job, trial.policy, market, bench.machines, with_moments=True)
    return {} if best is None else {trial.label: curve_of_moments(best.moments, job.work.amount)}
