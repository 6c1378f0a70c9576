"""Runs the trials of a backtest, skips those with stored scores, and shows the progress."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from costopt.backtesting.backtest import Runner, backtest
from costopt.backtesting.trial import BacktestConfig, Score, Trial, TrialKeys
from costopt.cli.backtest import FIRST_LINE_S, with_progress

MANY_RUNS = 1000
EARLY_LINE_S = 2.0
"""With this many runs, the number is printed before the first, and the time remaining soon after.
"""


def run_trials(
    bench: BacktestConfig,
    trials: Sequence[Trial],
    run: Runner,
    results: Path | None,
    keys: TrialKeys,
) -> list[tuple[Trial, Score]]:
    """Return every trial's score, those in ``results`` without running them again. Raise
    StoreError."""
    if results is None:
        return list(_counted(backtest(bench, trials, run), len(trials), 0))
    from costopt.backtesting.results_file import open_results_file

    with open_results_file(results) as file:
        known = sum(keys.of(trial) in file.known for trial in trials)
        if file.dropped:
            lines = (
                "1 damaged line is" if file.dropped == 1 else f"{file.dropped} damaged lines are"
            )
            click.echo(f"{results}: {lines} left out", err=True)
        if known:
            click.echo(f"{results}: {known} of {len(trials)} runs are already in it", err=True)
        return list(_counted(backtest(bench, trials, run, file, keys), len(trials), known))


def _counted(
    scores: Iterable[tuple[Trial, Score]], total: int, known: int
) -> Iterable[tuple[Trial, Score]]:
    """Yield the scores, with a progress bar on a terminal, otherwise with lines of progress."""
    is_large = total - known >= MANY_RUNS
    if is_large:
        click.echo(f"replaying {total - known:,} runs; the time remaining follows", err=True)
    if not sys.stderr.isatty():
        first_line_s = EARLY_LINE_S if is_large else FIRST_LINE_S
        return with_progress(scores, total, "runs", known=known, first_line_s=first_line_s)
    from rich.console import Console
    from rich.progress import track

    return track(
        scores,
        description="replaying",
        total=total,
        console=Console(stderr=True),
        transient=True,
    )
