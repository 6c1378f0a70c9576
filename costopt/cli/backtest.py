"""`costopt backtest`: replays policies on recorded markets and prints how they compare.

Where no terminal draws a progress bar, lines of progress are printed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    MarketFile,
    account_option,
    carbon_option,
    complete_market,
    complete_policy,
    cooldown_option,
    durations_s,
    history_s,
    job_argument,
    notice_option,
)
from costopt.cli.output import output_option
from costopt.formatting import seconds_text

if TYPE_CHECKING:
    from costopt.backtesting.grid import BacktestGrid
    from costopt.backtesting.trial import BacktestConfig, Score, Trial
    from costopt.domain.policy import Policy


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@job_argument
@click.option(
    "--market", "markets", type=MarketFile(dir_okay=False), multiple=True, required=True,
    shell_complete=complete_market, metavar="NAME|FILE",
    help="A market history, or sample, which costopt ships; may be given several times.",
)  # fmt: skip
@click.option(
    "--policies",
    default="cheapest",
    metavar="A,B,C",
    shell_complete=complete_policy,
    help="Policies to try beside the baselines: names or files.",
)
@click.option(
    "--starts",
    type=click.IntRange(min=1),
    default=1,
    help="Windows spread over each history, a tick or more apart.",
)
@click.option(
    "--deadlines", "deadlines_s", callback=durations_s, metavar="D1,D2",
    help="Deadlines to try, such as 52h,60h, in place of the job's.",
)  # fmt: skip
@click.option(
    "--startups", "startups_s", callback=durations_s, metavar="D1,D2",
    help="Start-up times of a node to try, such as 1m,6m, in place of the job's.",
)  # fmt: skip
@click.option(
    "--lifetime-oracle", is_flag=True,
    help="Also try the policies with each spot pool's lifetime known in advance.",
)  # fmt: skip
@click.option(
    "--history", "past_s", callback=history_s, default="none", metavar="DURATION|all|none",
    show_default=True,
    help="How much of the history before its start each run may learn from, such as 14d.",
)  # fmt: skip
@click.option(
    "--over-gaps", is_flag=True,
    help="Let windows span gaps in the history, as if there were no capacity in them.",
)  # fmt: skip
@notice_option
@cooldown_option
@click.option(
    "--forecasts",
    is_flag=True,
    help="Plan with price forecasts from the history so far (slower).",
)
@carbon_option
@account_option
@click.option(
    "--by", type=click.Choice(["all", "market", "deadline", "startup"]), default="all",
    help="Windows to average over.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, help="Seed of the bootstrap behind the intervals.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), metavar="N",
    help="Processes; default: the cores, if there are eight runs for each.",
)  # fmt: skip
@click.option("--ray", metavar="ADDRESS", help="Run on this Ray cluster; local starts one here.")
@click.option(
    "--results", type=FILE, metavar="FILE",
    help="Append each run's score to this file and skip runs already in it.",
)  # fmt: skip
@click.option("--runs", type=FILE, metavar="FILE", help="Write every run here as CSV.")
@click.option("--report", type=FILE, metavar="FILE", help="Write an HTML report here.")
@output_option
def backtest(
    job: str,
    markets: tuple[Path, ...],
    policies: str,
    starts: int,
    deadlines_s: tuple[float, ...] | None,
    startups_s: tuple[float, ...] | None,
    lifetime_oracle: bool,
    past_s: float,
    over_gaps: bool,
    notice_s: float,
    cooldown_s: float,
    forecasts: bool,
    carbon: Path | None,
    account: str | None,
    by: str,
    seed: int,
    jobs: int | None,
    ray: str | None,
    results: Path | None,
    runs: Path | None,
    report: Path | None,
    output: str,
) -> None:
    """Try policies on a recorded market.

    The same engine that launches nodes runs the job on virtual ones, once per policy and window,
    beside three baselines (on demand, greedy spot, uniform progress) and the hindsight optimum.
    Every market given is tried from every start, with every deadline and start-up time. A run knows
    nothing of the market before it starts, unless --history lets those that learn observe the
    history up to then. The figures are the same for any number of processes.
    """
    from costopt.backtesting.backtest import backtest_config, trial_keys
    from costopt.backtesting.executors import TrialExecutor
    from costopt.backtesting.grid import build_grid, read_markets
    from costopt.cli.backtest_run import run_trials
    from costopt.planning.request import load_account

    _check_folders(report=report, results=results, runs=runs)
    run = TrialExecutor(jobs, ray).runner()
    histories = read_markets(markets)
    bench = backtest_config(
        histories,
        notice_s=notice_s,
        cooldown_s=cooldown_s,
        price_forecasts=forecasts,
        carbon=carbon,
        account=load_account(account),
        past_s=past_s,
    )
    grid = build_grid(
        job,
        _chosen(policies),
        bench,
        starts=starts,
        deadlines_s=deadlines_s,
        startups_s=startups_s,
        with_oracle=lifetime_oracle,
        over_gaps=over_gaps,
    )
    for note in grid.notes:
        print_error("note", note)
    keys = trial_keys(bench, price_forecasts=forecasts, carbon=carbon)
    scores = run_trials(bench, grid.trials, run, results, keys)
    _print_results(grid, scores, bench, by=by, seed=seed, runs=runs, report=report, output=output)


def _chosen(policies: str) -> list[Policy]:
    from costopt.cli.options import words
    from costopt.planning.request import load_checked_policy

    chosen = [load_checked_policy(name) for name in words(policies)]
    if not chosen:
        raise click.UsageError("nothing to try: --policies is empty")
    return chosen


def _check_folders(**paths: Path | None) -> None:
    """Raise UsageError if a folder is missing: files are written only after long replays."""
    for name, path in paths.items():
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"--{name} {path}: there is no folder {path.parent}")
    if paths["report"] is not None:
        from costopt.render.html import require_report_extra

        require_report_extra()


def _print_failures(scores: list[tuple[Trial, Score]]) -> None:
    """Print for each policy how many of its runs failed, and the first reason."""
    runs = Counter(trial.label for trial, _ in scores)
    reasons: dict[str, list[str]] = {}
    for trial, score in scores:
        if score.strategy_failure is not None:
            reasons.setdefault(trial.label, []).append(score.strategy_failure)
    for label, found in reasons.items():
        click.echo(
            f"note: in {len(found)} of {runs[label]} runs the strategy of policy {label} failed, "
            f"and the shield decided, as it would live: {found[0]}",
            err=True,
        )


def _print_results(
    grid: BacktestGrid,
    scores: list[tuple[Trial, Score]],
    bench: BacktestConfig,
    *,
    by: str,
    seed: int,
    runs: Path | None,
    report: Path | None,
    output: str,
) -> None:
    from costopt.backtesting.ranking import summarize_policies
    from costopt.backtesting.results_file import write_runs
    from costopt.cli.output import print_table
    from costopt.render.backtest_table import standings_table

    _print_failures(scores)
    ranked = summarize_policies(scores, grid.labels, grid.group_by(by), seed)
    table = standings_table(
        ranked,
        job=grid.job.name,
        coverages=grid.coverages,
        windows=len(grid.windows),
        spans_h=grid.spans_h,
        past_s=bench.history_s,
    )
    print_table(table, output)
    if runs is not None:
        write_runs(scores, runs)
        click.echo(f"runs: {runs}", err=True)
    if report is not None:
        from costopt.cli.backtest_report import write_report

        write_report(ranked, grid, bench, report)
        click.echo(f"report: {report}", err=True)


FIRST_LINE_S = 10.0
INTERVAL_S = 30.0
FEW_ITEMS = 10
"""No estimate before this many items, as the first few may not be typical."""

Item = TypeVar("Item")


def _say(line: str) -> None:
    click.echo(line, err=True)


def with_progress(
    items: Iterable[Item],
    total: int,
    what: str,
    *,
    known: int = 0,
    first_line_s: float = FIRST_LINE_S,
    now_s: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = _say,
) -> Iterator[Item]:
    """Yield the items; print now and then how many of ``total`` are done and the time remaining.

    The estimate excludes the first ``known`` items, which took no time, and the one after, which
    waited for the start-up. If all is done within ``first_line_s``, nothing is printed.
    """
    began_s = now_s()
    due_s, steady_s = first_line_s, began_s
    for count, item in enumerate(items, start=1):
        yield item
        now = now_s()
        if count == known + 1:
            steady_s = now
        timed = count - known - 1
        is_sure = timed >= FEW_ITEMS or (timed > 0 and now - began_s >= INTERVAL_S)
        if now - began_s >= due_s and is_sure and count < total:
            left_s = (now - steady_s) / timed * (total - count)
            say(f"{count:,} of {total:,} {what}, about {seconds_text(left_s)} left")
            due_s = now - began_s + INTERVAL_S
