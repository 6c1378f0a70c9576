"""The report of a backtest: the standings, and the curves of its first window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costopt.cli.backtest_grid import Grid
from costopt.cli.backtest_table import coverage_note, report_rows
from costopt.replay.hindsight import hindsight
from costopt.replay.ranking import Standing
from costopt.replay.trial import HINDSIGHT, Bench, Trial
from costopt.report.backtest_curve import BacktestCurve, curve_of_moments, curve_of_run
from costopt.report.html import write_backtest_report
from costopt.report.run import Run


def write_report(standings: Sequence[Standing], grid: Grid, bench: Bench, path: Path) -> None:
    """Write the page; the first window is replayed once more for its curves."""
    trials = (Trial(grid.windows[0], policy) for policy in grid.policies)
    found = ((trial.label, _curve(bench, trial)) for trial in trials)
    curves = {label: curve for label, curve in found if curve is not None}
    notes = [coverage_note(coverage) for coverage in grid.coverages]
    write_backtest_report(report_rows(standings), curves, path, coverage=notes)


def _curve(bench: Bench, trial: Trial) -> BacktestCurve | None:
    job = trial.window.job
    if trial.policy.strategy.name != HINDSIGHT:
        done = bench.rehearse(trial)
        events = (recorded.event for recorded in done.events)
        return curve_of_run(Run.of(events, done.summary.now))
    market = bench.markets[trial.window.market]
    best = hindsight(job, trial.policy, market, bench.machines, with_moments=True)
    if best is None:
        return None
    return curve_of_moments(best.moments, job.work.amount)
