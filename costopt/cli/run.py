"""`costopt run`: runs a job to completion.

Progress is a bar on a terminal and lines of news elsewhere, on stderr.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    cooldown_option,
    forecasts_option,
    gpus_option,
    is_live,
    market_option,
    notice_option,
    output_option,
    policy_option,
    print_table,
    provider_option,
    region_option,
    restrict,
    speed_option,
    spot_option,
    state_dir_option,
    tick_option,
)
from costopt.cli.provider_account import nearest_account
from costopt.controller.live_run import LiveRun
from costopt.engine.engine import TickResult
from costopt.engine.loop import OnTick
from costopt.formatting import minute_text

if TYPE_CHECKING:
    from costopt.controller.launch_faults import LaunchFaults
    from costopt.controller.live_run import LiveRun, StopSignals
    from costopt.domain.job import Job
    from costopt.engine.engine import TickResult
    from costopt.engine.loop import OnTick


SAVE_TIMEOUT_S = 30.0
"""Seconds that nodes may take to checkpoint if the controller itself fails."""


@click.command()
@click.argument("job", metavar="JOB.yaml")
@policy_option
@provider_option
@region_option
@gpus_option
@spot_option
@market_option
@at_option
@speed_option
@tick_option
@notice_option
@cooldown_option
@forecasts_option
@carbon_option
@account_option
@state_dir_option
@click.option(
    "--explain", is_flag=True, help="Record the rejected alternatives with each decision."
)
@click.option("--apply", is_flag=True, help="Launch nodes. Without this flag, only print the plan.")
@output_option
def run(
    job: str,
    policy: str,
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    gpus: str | None,
    spot: bool | None,
    market: Path | None,
    at: datetime | None,
    speed: float,
    tick_s: float,
    notice_s: float | None,
    cooldown_s: float,
    forecasts: bool,
    carbon: Path | None,
    account: str | None,
    state_dir: Path,
    explain: bool,
    apply: bool,
    output: str,
) -> None:
    """Run a job to completion.

    The job trains on nodes that the provider may interrupt; it resumes from its checkpoints and
    ends before its deadline. Run the same command again to resume a stopped run. Ctrl-C, SIGTERM
    and SIGHUP checkpoint and release every node; a second one releases them at once.
    """
    from costopt.api.plans import PlanResult
    from costopt.cli.plan import print_plan
    from costopt.cli.simulation import Simulation, resolve_run_target
    from costopt.controller.checkpoint_places import check_stored_identity, is_folder_place
    from costopt.controller.controller import ControllerSettings
    from costopt.controller.launch_faults import LaunchFaults
    from costopt.controller.live_run import StopSignals, open_run
    from costopt.controller.state_dir import exposure_note
    from costopt.planning.account_bill import bill_notes, term_notes
    from costopt.planning.forecast.replay_forecast import needs_replays, replay_notes
    from costopt.planning.request import (
        carbon_notes,
        load_account,
        load_checked_policy,
        plan_job,
        raise_if_infeasible,
    )
    from costopt.spec import load_job

    shared = load_account(account if market and not is_live(market) else nearest_account(account))
    simulation = Simulation(at, speed, notice_s, forecasts)
    source = resolve_run_target(market, shared, providers, simulation, carbon)
    restriction = restrict(providers, regions, spot)
    restriction.check_names(shared, source.history)
    chosen = restriction.apply(load_checked_policy(policy))
    if not apply:
        seen = source.quotes(source.site.start_time())
        task = load_job(job, seen.now, shared, gpus)
        if shared.store is None and is_folder_place(task):
            check_stored_identity(task, shared.owner)
        made = plan_job(task, chosen, seen, account=shared)
        notes = (
            *seen.notes,
            *carbon_notes(seen, chosen, task.until_at),
            *term_notes(seen, shared),
            *bill_notes(made.allocations, seen, shared),
            *replay_notes(chosen, (made,)),
        )
        print_plan(PlanResult(task, chosen, made, notes, shared), output)
        click.echo("nothing was launched: add --apply to run it", err=True)
        return
    settings = ControllerSettings(tick_s, cooldown_s, shared, explain)
    signals, faults = StopSignals(), LaunchFaults(shared, chosen)

    def read_job(now: datetime) -> Job:
        return load_job(job, now, shared, gpus)

    with (
        living_nodes_named(state_dir),
        signals.caught(),
        open_run(read_job, chosen, source.site, state_dir, settings, signals, faults.check) as live,
    ):
        record = live.engine.journal.records[live.job.name]
        if not record.submitted:
            seen = source.quotes(live.site.clock.now())
            for note in (
                *seen.notes,
                *carbon_notes(seen, chosen, live.job.until_at),
                *term_notes(seen, shared),
            ):
                print_error("note", note)
            # The run waits for no replays.
            followed = needs_replays(chosen)
            made = plan_job(
                live.job, chosen, seen, explain=False, account=shared, followed=followed
            )
            raise_if_infeasible(made, live.job)
        if not record.live:
            live.site.check(live.job)
        _warn_of_short_market(live)
        _note(live.learned_reset)
        _note(exposure_note(state_dir))
        _run_until_stopped(live, faults, state_dir, signals)
        _print_end(live, output)


def _run_until_stopped(
    live: LiveRun, faults: LaunchFaults, state_dir: Path, signals: StopSignals
) -> None:
    """Run until the job is over, a signal comes, or `costopt stop` asks for the run's end."""
    from costopt.controller.stop_all import RunStopRequest

    request, watch = RunStopRequest(state_dir, live.job.name), faults.watch(live)
    request.withdraw()

    def check() -> None:
        watch()
        if request.is_made():
            raise KeyboardInterrupt

    try:
        run_live(live, check=check)
    except KeyboardInterrupt:
        _note("the same command resumes it")
        if signals.first in (signal.SIGINT, None):
            raise
        raise click.exceptions.Exit(128 + signals.first) from None


@contextmanager
def living_nodes_named(state_dir: Path) -> Iterator[None]:
    """If the run ends early, name the nodes that are living by the ledger and that it did not
    terminate.

    Those of jobs that another process controls are not among them.
    """
    from costopt.domain.errors import CostoptError

    try:
        yield
    except BaseException:
        with suppress(CostoptError):
            _name_living_nodes(state_dir)
        raise


def _name_living_nodes(state_dir: Path) -> None:
    from costopt.controller.orphans import abandoned_jobs, read_records
    from costopt.controller.state_dir import open_state_ledger

    with open_state_ledger(state_dir) as ledger, abandoned_jobs({state_dir: ledger}) as names:
        for name, record in read_records([ledger]).items():
            left = record.live.keys() - record.releasing if name in names else ()
            for node_id in sorted(left):
                _note(
                    f"node {node_id} in {record.live[node_id].pool} of job {name!r} may still run: "
                    "run the job again, or terminate it with `costopt reconcile --apply`"
                )


def _warn_of_short_market(live: LiveRun) -> None:
    market = live.site.market
    due = live.job.deadline_at
    if market is not None and due is not None and market.ends_at < due:
        click.echo(
            f"note: market {market.name!r} ends {minute_text(market.ends_at)}, before the "
            f"deadline {minute_text(due)}: after it nothing can be launched",
            err=True,
        )


def _note(message: str | None) -> None:
    if message is not None:
        click.echo(f"note: {message}", err=True)


def run_live(
    live: LiveRun, observe: OnTick | None = None, check: Callable[[], None] | None = None
) -> None:
    """Run until the job is over and show its progress.

    ``observe`` is called at each tick; ``check`` after it, and ends the run if it raises.
    """
    from costopt.engine.loop import run_until_done as run_loop

    with progress_view(live) as show:

        def on_tick(result: TickResult) -> None:
            show(result)
            if observe is not None:
                observe(result)
            _note(live.learned.save(result.now))
            live.raise_if_market_ended(result)
            if check is not None and not result.is_done:
                check()
            if not result.is_done:
                live.signals.check()

        try:
            live.signals.check()
            run_loop(live.engine, on_tick)
        except KeyboardInterrupt:
            _stop(live, show)
            raise
        except BaseException:
            _print_left(
                live.release_nodes("an error of the controller", save_within_s=SAVE_TIMEOUT_S)
            )
            raise


def _stop(live: LiveRun, show: OnTick) -> None:

    from costopt.engine.loop import stop_all

    click_line("stopping: checkpointing, then releasing the nodes (again: at once)")
    reason = "stopped by the user"
    try:
        live.signals.interrupt_immediately()
        stop_all(live.engine, reason, show)
    except BaseException:
        with live.signals.unheard():
            _print_left(live.release_nodes(reason))
        raise


def _print_left(troubles: tuple[str, ...]) -> None:
    for message in troubles:
        _note(f"{message}; see `costopt reconcile`")


def _print_end(live: LiveRun, output: str) -> None:
    from costopt.domain.errors import CostoptError, GuardTrippedError, JobFailedError
    from costopt.views.job import job_table

    name = live.job.name
    record = live.engine.journal.records[name]
    account = live.engine.journal.accounts[name]
    row = {"summary": account.summary(live.site.clock.now())}
    print_table(job_table(row, output), output)
    if record.failed is not None:
        raise JobFailedError(
            f"job {name!r} failed: {record.failed}",
            hint="correct the cause that the message or the log names and run it again",
        )
    if not record.finished:
        raise GuardTrippedError(
            f"job {name!r} was stopped by guard {record.guard}; its checkpoint is retained",
            hint="raise the limit in the policy or the job's budget and run it again",
            code="guard",
        )
    if account.summary(live.site.clock.now()).on_time is False:
        raise CostoptError(f"job {name!r} finished after its deadline")


@contextmanager
def progress_view(run: LiveRun) -> Iterator[OnTick]:
    """Return a callback for each tick. It writes to stderr only."""
    if sys.stderr.isatty():
        with _bar(run) as on_tick:
            yield on_tick
    else:
        yield _news_lines(run, click_line)


def click_line(text: str) -> None:
    """Write one line to stderr. A closed stderr or terminal does not stop a run."""
    with suppress(OSError):
        click.echo(text, err=True)


def _news_lines(run: LiveRun, write: Callable[[str], None]) -> OnTick:
    seen = max((r.seq for r in run.ledger.events(run.job.name)), default=0)

    def on_tick(_: TickResult) -> None:
        nonlocal seen
        from costopt.views.event import describe_events

        news = list(run.ledger.events(run.job.name, after=seen))
        seen = max((recorded.seq for recorded in news), default=seen)
        units = {run.job.name: run.job.work.unit.value}
        for row in describe_events((each.event for each in news), units):
            if not row.routine:
                write(f"{row.source.at:%m-%d %H:%M:%S}  {row.what}: {row.detail}")

    return on_tick


@contextmanager
def _bar(run: LiveRun) -> Iterator[OnTick]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(
            run.job.name, total=run.job.work.amount, state="starting", figures=""
        )
        news = _news_lines(run, lambda line: console.print(line, highlight=False, markup=False))

        def on_tick(result: TickResult) -> None:
            news(result)
            done = run.engine.progress_of(run.job.name)
            progress.update(
                task,
                completed=done.done_units,
                state=f"{done.state.value} on {len(result.nodes)} node(s)",
                figures=_figures(run, result),
            )

        yield on_tick


def _figures(run: LiveRun, result: TickResult) -> str:
    summary = run.engine.journal.accounts[run.job.name].summary(result.now)
    energy = "energy unknown" if summary.kwh is None else f"{summary.kwh:.2f} kWh"
    return f"${summary.usd:.2f}  {energy}  {_eta(run, result)}"


def _eta(run: LiveRun, result: TickResult) -> str:
    done = run.engine.progress_of(run.job.name)
    speed = done.measured_units_per_s
    if not speed:
        return "ETA –"
    left = timedelta(seconds=(run.job.work.amount - done.done_units) / speed)
    eta = f"ETA {result.now + left:%H:%M}"
    if run.job.deadline_at is None:
        return eta
    slack_h = (run.job.deadline_at - result.now - left).total_seconds() / 3600
    return f"{eta}, {slack_h:+.1f} h to the deadline"
