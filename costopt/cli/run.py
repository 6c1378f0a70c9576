"""costopt run"""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.figures import moment
from costopt.cli.options import account_option, carbon_option, forecasts_option, instant
from costopt.cli.output import output_option
from costopt.cli.state import state_dir_option

if TYPE_CHECKING:
    from costopt.domain.history import MarketHistory
    from costopt.engine.loop import OnTick
    from costopt.engine.tick import TickResult
    from costopt.session.live import LiveRun

SAVE_WITHIN_S = 30.0
"""How long nodes may take to checkpoint where the controller itself fails."""


@click.command()
@click.argument("job", metavar="JOB.yaml")
@click.option("--policy", "-p", default="cheapest", metavar="NAME|FILE", help="Policy to follow.")
@click.option(
    "--provider", type=click.Choice(["sim"]), default="sim", help="Where the nodes come from."
)
@click.option("--market", metavar="FILE", required=True, help="Recorded market of the simulator.")
@click.option(
    "--at",
    metavar="TIME",
    callback=instant,
    help="Where in the record to begin; its start if not given.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.001),
    default=1.0,
    help="Seconds of market time that pass in one second.",
)
@click.option(
    "--tick",
    "tick_s",
    type=click.FloatRange(min=1),
    default=60.0,
    help="Seconds between decisions.",
)
@click.option(
    "--notice", "notice_s", type=click.FloatRange(min=0), default=120.0,
    help="Seconds from an interruption's notice to its strike.",
)  # fmt: skip
@forecasts_option
@carbon_option
@account_option
@state_dir_option
@click.option("--explain", is_flag=True, help="Record with each decision what else was weighed.")
@click.option("--apply", is_flag=True, help="Launch nodes; without it the plan is only shown.")
@output_option
def run(
    job: str,
    policy: str,
    provider: str,  # noqa: ARG001 - one choice so far
    market: str,
    at: datetime | None,
    speed: float,
    tick_s: float,
    notice_s: float,
    forecasts: bool,
    carbon: Path | None,
    account: str | None,
    state_dir: Path,
    explain: bool,
    apply: bool,
    output: str,
) -> None:
    """Run a job until it is done.

    The job trains on nodes that the provider may take away; it resumes from its checkpoints and
    ends before its deadline. Run the same command again to go on with a run that was stopped.
    Ctrl-C, SIGTERM and SIGHUP checkpoint and give every node back; a second one gives them back
    at once.
    """
    from costopt.cli.accounts import read_account
    from costopt.cli.planning import refuse_infeasible, show_quoted_plan
    from costopt.cli.policies import read_policy
    from costopt.cli.quotes import recorded_quotes
    from costopt.energy.carbon_file import read_carbon
    from costopt.market.history_file import read_history
    from costopt.session.checkpoint_place import check_checkpoint_place
    from costopt.session.live import LiveOptions, open_run
    from costopt.session.simulated_cloud import SimulatedCloud
    from costopt.session.stop_signals import StopSignals
    from costopt.session.trainer import check_trainer
    from costopt.spec import load_job

    history = read_history(Path(market))
    start_at = at or history.starts_at
    _check_start(history, start_at)
    chosen, shared = read_policy(policy), read_account(account)
    intensities = None if carbon is None else read_carbon(carbon)
    if not apply:
        seen = recorded_quotes(history, start_at, intensities)
        show_quoted_plan(load_job(job, start_at), chosen, seen, output, account=shared)
        click.echo("nothing was launched: add --apply to run it", err=True)
        return
    cloud = SimulatedCloud(history, start_at, speed, notice_s, forecasts, intensities)
    options = LiveOptions(state_dir, tick_s, account=shared, explain=explain)
    signals = StopSignals()
    with (
        signals.caught(),
        open_run(lambda now: load_job(job, now), chosen, cloud, options, signals) as live,
    ):
        record = live.engine.journal.records[live.job.name]
        if not record.submitted:
            refuse_infeasible(live.job, chosen, history, live.clock.now(), shared)
        if not record.live:
            check_trainer(live.job)
            check_checkpoint_place(live.job)
        _warn_of_short_market(live)
        try:
            _run(live)
        except KeyboardInterrupt:
            if signals.first == signal.SIGINT:
                raise
            raise click.exceptions.Exit(128 + (signals.first or 0)) from None
        _tell_end(live, output)


def _check_start(history: MarketHistory, start_at: datetime) -> None:
    begins_at, ends_at = history.starts_at, history.ends_at
    if not begins_at <= start_at < ends_at:
        raise click.BadParameter(
            f"market {history.name!r} is recorded from {moment(begins_at)} to {moment(ends_at)}, "
            f"not at {moment(start_at)}",
            param_hint="'--at'",
        )


def _warn_of_short_market(live: LiveRun) -> None:
    market = live.market
    if market is not None and market.ends_at < live.job.deadline_at:
        click.echo(
            f"note: market {market.name!r} ends {moment(market.ends_at)}, before the "
            f"deadline {moment(live.job.deadline_at)}: after it nothing can be launched",
            err=True,
        )


def _run(live: LiveRun) -> None:
    from costopt.cli.live_view import live_view
    from costopt.engine.loop import run as run_loop

    with live_view(live) as show:

        def on_tick(result: TickResult) -> None:
            show(result)
            live.refuse_ended_market(result)
            if not result.over:
                live.signals.check()

        try:
            live.signals.check()
            run_loop(live.engine, on_tick)
        except KeyboardInterrupt:
            _stop(live, show)
            raise
        except BaseException:
            live.give_back("an error of the controller", save_within_s=SAVE_WITHIN_S)
            raise


def _stop(live: LiveRun, show: OnTick) -> None:
    from costopt.cli.live_view import click_line
    from costopt.engine.loop import stop

    click_line("stopping: checkpoint, then give the nodes back (again: at once)")
    reason = "stopped by the user"
    try:
        live.signals.hear_at_once()
        stop(live.engine, reason, show)
    except BaseException:
        with live.signals.unheard():
            live.give_back(reason)
        raise


def _tell_end(live: LiveRun, output: str) -> None:
    from costopt.cli.run_table import show_account
    from costopt.domain.errors import CostoptError, GuardTrippedError, JobFailedError

    name = live.job.name
    record = live.engine.journal.records[name]
    account = live.engine.journal.accounts[name]
    show_account(account, live.clock.now(), output)
    if record.failed is not None:
        about_saves = "CheckpointError" in record.failed
        raise JobFailedError(
            f"job {name!r} failed: {record.failed}",
            hint="make room and write permission for checkpoints, then run it again"
            if about_saves
            else "mend the command, then run it again",
        )
    if not record.finished:
        raise GuardTrippedError(
            f"job {name!r} was stopped by guard {record.guard}; its checkpoint is kept",
            hint="raise the limit in the policy or the job's budget, then run it again",
        )
    if account.summary(live.clock.now()).on_time is False:
        raise CostoptError(f"job {name!r} finished after its deadline")
