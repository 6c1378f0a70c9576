"""`costopt backtest`: replays policies on recorded markets and prints how they compare.

Where no terminal draws a progress bar, lines of progress are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    account_option,
    carbon_option,
    complete_policy,
    cooldown_option,
    durations_s,
    forecasts_option,
    gpus_option,
    history_s,
    job_argument,
    markets_option,
    notice_option,
    output_option,
    print_table,
    provider_option,
    region_option,
    restrict,
    spot_option,
    words,
)
from costopt.formatting import seconds_text

if TYPE_CHECKING:
    from costopt.api.backtests import BacktestResult, Group, ScoredTrial
    from costopt.render.table import Table


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@job_argument
@markets_option
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
    "--bounds", is_flag=True,
    help="Also try the default strategy with the record's rates of interruption known in advance, "
    "and Uniform Progress with each interruption known.",
)  # fmt: skip
@click.option(
    "--regret", is_flag=True,
    help="Print what each policy lost against the hindsight optimum, by kind of decision.",
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
@forecasts_option
@carbon_option
@account_option
@provider_option
@region_option
@gpus_option
@spot_option
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
@output_option
def backtest(
    job: str,
    markets: tuple[Path, ...],
    policies: str,
    starts: int,
    deadlines_s: tuple[float, ...] | None,
    startups_s: tuple[float, ...] | None,
    bounds: bool,
    regret: bool,
    past_s: float,
    over_gaps: bool,
    notice_s: float | None,
    cooldown_s: float,
    forecasts: bool,
    carbon: Path | None,
    account: str | None,
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    gpus: str | None,
    spot: bool | None,
    by: Group,
    seed: int,
    jobs: int | None,
    ray: str | None,
    results: Path | None,
    runs: Path | None,
    output: str,
) -> None:
    """Try policies on a recorded market.

    The same engine that launches nodes runs the job on virtual ones, once per policy and window,
    beside three baselines (on demand, greedy spot, uniform progress) and the hindsight optimum.
    Every market given is tried from every start, with every deadline and start-up time. A run knows
    nothing of the market before it starts, unless --history lets those that learn observe the
    history up to then. The figures are the same for any number of processes.
    """
    from costopt.api import backtests
    from costopt.api.inputs import load_account, load_job, read_market
    from costopt.controller.live_carbon import LIVE

    if carbon == LIVE:
        raise click.UsageError("--carbon live is of the present, a backtest of the past")
    _check_folders(results=results, runs=runs)
    chosen = words(policies)
    if not chosen:
        raise click.UsageError("nothing to try: --policies is empty")
    histories = [read_market(path) for path in dict.fromkeys(markets)]
    shared = None if account is None else load_account(account)
    restriction = restrict(providers, regions, spot)
    progress = ProgressPrinter()
    result = backtests.backtest(
        load_job(job, now=histories[0].starts_at, account=shared, gpus=gpus),
        chosen,
        histories,
        starts=starts,
        deadlines=deadlines_s or (),
        startups=startups_s or (),
        history_s=past_s,
        notice_s=notice_s,
        cooldown_s=cooldown_s,
        forecasts=forecasts,
        over_gaps=over_gaps,
        bounds=bounds,
        regret=regret,
        account=shared,
        provider=restriction.providers,
        region=restriction.regions,
        capacity=restriction.capacity,
        carbon=carbon,
        by=by,
        seed=seed,
        processes=jobs,
        ray=ray,
        results=results,
        progress=progress,
    )
    table = result.regret_table() if regret else result.table()
    _print_result(result, table, output, shown=progress.notes, runs=runs)


def _print_result(
    result: BacktestResult,
    table: Table,
    output: str,
    *,
    shown: Collection[str],
    runs: Path | None,
) -> None:
    """Write the notes that were not shown yet, the table and the files."""
    from costopt.backtesting.results_file import write_runs

    for note in result.notes:
        if note not in shown:
            print_error("note", note)
    print_table(table, output, result.to_html)
    if runs is not None:
        write_runs(result.scores, runs)
        click.echo(f"runs: {runs}", err=True)


def _check_folders(**paths: Path | None) -> None:
    """Raise UsageError if a folder is missing: files are written only after long replays."""
    for name, path in paths.items():
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"--{name} {path}: there is no folder {path.parent}")


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


MANY_RUNS = 1000
EARLY_LINE_S = 2.0
"""With this many runs, the number is printed before the first, and the time remaining soon after.
"""


class ProgressPrinter:
    """Shows the progress of a backtest: a bar on a terminal, otherwise lines.

    ``notes`` are those that it has printed.
    """

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()

    def __call__(
        self, scores: Iterator[ScoredTrial], *, total: int, known: int, notes: tuple[str, ...]
    ) -> Iterable[ScoredTrial]:
        """Print the notes; yield the scores, with their progress."""
        self.notes = notes
        for note in notes:
            print_error("note", note)
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
