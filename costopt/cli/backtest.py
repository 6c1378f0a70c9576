"""costopt backtest"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.figures import length
from costopt.cli.options import (
    carbon_option,
    complete_policy,
    forecasts_option,
    job_argument,
    words,
)
from costopt.cli.output import output_option

if TYPE_CHECKING:
    from costopt.domain.history import MarketHistory
    from costopt.domain.job import Job
    from costopt.domain.market import Offer
    from costopt.domain.policy import Policy
    from costopt.domain.ports import Forecasts, Machines
    from costopt.replay.backtest import Outcome


@click.command()
@job_argument
@click.option("--market", required=True, metavar="FILE", help="Recorded or generated market.")
@click.option(
    "--policies",
    default="cheapest",
    metavar="A,B,C",
    shell_complete=complete_policy,
    help="Policies to try beside the baselines: names or files.",
)
@click.option(
    "--starts", type=click.IntRange(min=1), default=1, help="Windows spread over the record."
)
@click.option(
    "--notice", "notice_s", type=click.FloatRange(min=0), default=120.0,
    help="Seconds from an interruption's notice to its strike.",
)  # fmt: skip
@forecasts_option
@carbon_option
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML report here as well.",
)
@output_option
def backtest(
    job: str,
    market: str,
    policies: str,
    starts: int,
    notice_s: float,
    forecasts: bool,
    carbon: Path | None,
    report: Path | None,
    output: str,
) -> None:
    """Try policies on a recorded market.

    The same engine that launches nodes runs the job on virtual ones, once per policy and window,
    beside three baselines (on demand, greedy spot, uniform progress) and the optimum that knew
    the market beforehand.
    """
    from costopt.catalog import load_catalog
    from costopt.cli.backtest_table import backtest_rows, show_rows, write_report
    from costopt.energy import NodePowerModel
    from costopt.market.hazard import LearnedHazard
    from costopt.market.history_file import read_history
    from costopt.replay.backtest import Bench, windows, with_baselines
    from costopt.replay.backtest import backtest as run_backtest
    from costopt.session.hazards import catalog_priors
    from costopt.spec import load_job

    if report is not None:
        _check_report(report)
    history = read_history(Path(market))
    catalog = load_catalog()
    task = load_job(job, history.starts_at)
    chosen = _chosen(policies)
    bench = Bench(
        machines=catalog,
        transfers=catalog.transfer,
        powers=lambda policy: NodePowerModel(catalog, policy.objective.carbon_signal),
        hazards=lambda: LearnedHazard(catalog_priors(catalog)),
        notice_s=notice_s,
        forecasts=_forecasts(history if forecasts else None, carbon),
    )
    times = windows(task, history, starts)
    everyone = with_baselines(chosen, chosen[0])
    _check_names(everyone)
    _check_pools(task, history, catalog)
    runs = run_backtest(task, everyone, history, times, bench)
    outcomes = list(_counted(runs, len(times) * len(everyone)))
    rows = backtest_rows(outcomes)
    show_rows(rows, task, history, len(times), output)
    if report is not None:
        write_report(rows, outcomes, report)
        click.echo(f"report: {report}", err=True)


def _chosen(policies: str) -> list[Policy]:
    from costopt.cli.policies import read_policy

    chosen = [read_policy(name) for name in words(policies)]
    if not chosen:
        raise click.UsageError("nothing to try: --policies is empty")
    return chosen


def _forecasts(
    market: MarketHistory | None, carbon: Path | None
) -> Callable[[Policy], Forecasts] | None:
    """From each policy to forecasts of what was asked for, None where nothing was."""
    if market is None and carbon is None:
        return None
    from costopt.catalog import load_catalog
    from costopt.energy.carbon_file import read_carbon
    from costopt.replay.forecasts import RecordedForecasts, counted

    recorded = None if carbon is None else read_carbon(carbon)
    region = load_catalog().region
    return lambda policy: RecordedForecasts(market, counted(recorded, policy.objective, region))


def _check_names(policies: Sequence[Policy]) -> None:
    """Outcomes are told apart by the policy's name."""
    for name, count in Counter(policy.name for policy in policies).items():
        if count > 1:
            raise click.UsageError(f"{count} policies, baselines included, are named {name!r}")


def _check_pools(job: Job, history: MarketHistory, machines: Machines) -> None:
    """Raises InfeasibleError where no pool of the record can ever do the job."""
    from costopt.domain.errors import InfeasibleError
    from costopt.domain.market import Offer
    from costopt.market.screen import screen_for_job

    offers = [Offer(pool, None, None, None) for pool in history.pools]
    usable, rejections = screen_for_job(offers, job, machines)
    if not usable:
        raise InfeasibleError(
            f"no pool of market {history.name!r} can run job {job.name!r}: {rejections[0].reason}",
            hint="costopt market show lists its pools",
        )
    fastest_s = min(job.work.amount / speed for speed in _speeds(usable, job, machines))
    span_s = (job.deadline_at - job.start_at).total_seconds()
    if fastest_s + job.startup_s > span_s:
        raise InfeasibleError(
            f"no pool of market {history.name!r} finishes job {job.name!r} in time: the fastest "
            f"takes {length(fastest_s + job.startup_s)}, its deadline leaves {length(span_s)}",
            hint="give it a later deadline or more nodes",
        )


def _speeds(offers: Iterable[Offer], job: Job, machines: Machines) -> Iterator[float]:
    """Units per second of every gang that the job allows."""
    for machine in {machines.machine(offer.pool) for offer in offers}:
        assert machine is not None
        for nodes in job.resources.node_counts(machine):
            speed = job.gang_units_per_s(machine, nodes)
            if speed is not None:
                yield speed.high


def _check_report(path: Path) -> None:
    """Replays take long: what the report cannot do without is looked for before them."""
    from costopt.report.extra import require_report_extra

    require_report_extra()
    if not path.parent.is_dir():
        raise click.UsageError(f"--report {path}: there is no folder {path.parent}")


def _counted(outcomes: Iterable[Outcome], total: int) -> Iterable[Outcome]:
    """The outcomes, with a bar on a terminal."""
    if not sys.stderr.isatty():
        return outcomes
    from rich.console import Console
    from rich.progress import track

    return track(
        outcomes,
        description="replaying",
        total=total,
        console=Console(stderr=True),
        transient=True,
    )
