"""`costopt calibrate`: measures a job's speed on one cheap node and writes it into the job file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from costopt.cli.options import (
    account_option,
    at_option,
    interval_s,
    market_option,
    provider_option,
    restrict,
    speed_option,
    state_dir_option,
    tick_option,
)
from costopt.domain.errors import CostoptError, SpecError
from costopt.domain.progress import GangState
from costopt.formatting import pool_text, seconds_text, usd_text

if TYPE_CHECKING:
    from costopt.cli.simulation import RunTarget
    from costopt.controller.controller import ControllerSettings
    from costopt.controller.live_run import LiveRun
    from costopt.domain.job import Job
    from costopt.engine.engine import TickResult
    from costopt.planning.calibration import Calibration

POLICY = "cheapest"


def _known_gpu(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    from costopt.spec.catalog_names import gpu_model_error

    reason = None if text is None else gpu_model_error(text)
    if reason is not None:
        raise click.BadParameter(reason, context, option)
    return text


@click.command()
@click.argument("job", metavar="JOB.yaml")
@click.option("--gpu", callback=_known_gpu, metavar="MODEL",
              help="The GPU model to measure on; default: that of the cheapest node.")  # fmt: skip
@click.option("--for", "train_s", callback=interval_s, default="5m", metavar="DURATION",
              help="How long to train once the first speed is reported.")  # fmt: skip
@provider_option
@market_option
@at_option
@speed_option
@tick_option
@account_option
@state_dir_option
@click.option("--apply", is_flag=True,
              help="Measure and write. Without this flag, only say where.")  # fmt: skip
def calibrate(
    job: str, gpu: str | None, train_s: float, providers: tuple[str, ...], market: Path | None,
    at: datetime | None, speed: float, tick_s: float, account: str | None, state_dir: Path,
    apply: bool,
) -> None:  # fmt: skip
    """Measure a job's speed and write it into its file.

    The job's command trains for a few minutes on the cheapest single node that the job allows, with
    checkpoints in a place of their own. The measured speed is shown as a change of the file and
    written under throughput.points; comments and form of the file stay as they are. The file may
    say nothing of its speed before.
    """
    from costopt.cli.simulation import Simulation, resolve_run_target
    from costopt.controller.controller import ControllerSettings
    from costopt.planning.calibration import plan_calibration
    from costopt.planning.request import load_account
    from costopt.spec import load_unmeasured_job

    shared = load_account(account)
    simulation = Simulation(at, speed, notice_s=None, price_forecasts=False)
    source = resolve_run_target(market, shared, providers, simulation, None)
    seen = source.quotes(source.site.start_time())
    restriction = restrict(providers, (), None)
    restriction.check_names(shared, source.history)
    seen = replace(
        seen, offers=tuple(each for each in seen.offers if restriction.allows(each.pool))
    )
    task = load_unmeasured_job(job, seen.now, shared)
    if task.array is not None:
        raise SpecError(
            f"{job} is an array: its speed is the duration of a task",
            hint="measure a task, and correct array.duration",
        )
    planned = plan_calibration(task, seen, gpu, train_s)
    click.echo(
        f"calibration of {planned.machine.gpu.model} on 1 × {pool_text(str(planned.offer.pool))}: "
        f"about {seconds_text(3600 * planned.hours)} and {usd_text(planned.usd)}"
    )
    if not apply:
        click.echo("nothing was launched: add --apply to measure and write the speed", err=True)
        return
    if not planned.job.run:
        raise SpecError(f"{job} has no run: there is nothing to measure", hint="add the command")
    settings = ControllerSettings(tick_s, 0.0, shared, explain=False)
    measured = _measure(planned, source, state_dir, settings)
    _write(Path(job), planned, measured)


@dataclass(slots=True)
class _Speeds:
    """Collects the speeds that the node reports, and stops the run after ``train_s`` of them.

    After ``limit_s`` it stops in any case.
    """

    live: LiveRun
    train_s: float
    limit_s: float
    began_at: datetime | None = None
    first_at: datetime | None = None
    units_per_s: list[float] = field(default_factory=list)

    def observe(self, result: TickResult) -> None:
        """Take the present speed."""
        self.began_at = self.began_at or result.now
        if (result.now - self.began_at).total_seconds() >= self.limit_s:
            self.live.engine.stop("no speed was reported for too long")
        progress = self.live.engine.progress_of(self.live.job.name)
        if progress.state is not GangState.TRAINING or not progress.measured_units_per_s:
            return
        self.first_at = self.first_at or result.now
        self.units_per_s.append(progress.measured_units_per_s)
        if (result.now - self.first_at).total_seconds() >= self.train_s:
            self.live.engine.stop("the speed is measured")

    def measured(self) -> float:
        """Return the median of the later half, which leaves the warm-up out. Raise CostoptError."""
        if not self.units_per_s:
            raise CostoptError(
                f"job {self.live.job.name!r} reported no speed",
                hint="see its log with `costopt logs`; the command must report its progress",
            )
        return median(self.units_per_s[len(self.units_per_s) // 2 :])


def _measure(
    planned: Calibration, source: RunTarget, state_dir: Path, settings: ControllerSettings
) -> float:
    """Run the job that measures, and return units of work per second."""
    from costopt.cli.run import living_nodes_named, run_live
    from costopt.controller.live_run import StopSignals, open_run
    from costopt.planning.request import load_checked_policy

    lasts = planned.job.until_at - planned.job.start_at
    signals = StopSignals()

    def job_at(now: datetime) -> Job:
        return replace(planned.job, start_at=now, deadline_at=now + lasts)

    policy = load_checked_policy(POLICY)
    with (
        living_nodes_named(state_dir),
        signals.caught(),
        open_run(job_at, policy, source.site, state_dir, settings, signals) as live,
    ):
        live.site.check(live.job)
        speeds = _Speeds(live, planned.train_s, planned.limit_s)
        try:
            run_live(live, speeds.observe)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(128 + (signals.first or 2)) from None
        record = live.engine.journal.records[live.job.name]
        if record.failed is not None:
            raise CostoptError(f"the calibration failed: {record.failed}")
        return speeds.measured()


def _write(path: Path, planned: Calibration, units_per_s: float) -> None:
    """Show the change of the job file, and write it."""
    from difflib import unified_diff

    from costopt.spec.measured_point import with_measured_speed
    from costopt.store.atomic_file import write_atomic, write_error_hint

    target = path.resolve()
    before = target.read_bytes().decode("utf-8")
    machine = planned.machine
    note = f"measured {planned.job.start_at:%Y-%m-%d} on {machine.name}, costopt calibrate"
    after = with_measured_speed(
        before, str(path), machine.gpu, machine.gpu_count, units_per_s, note
    )
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for line in unified_diff(old, new, str(path), str(path)):
        click.echo(line.rstrip("\r\n"))
    mode = target.stat().st_mode
    try:
        write_atomic(target, after.encode())
        target.chmod(mode)
    except OSError as error:
        raise SpecError(
            f"{path} cannot be written: {error.strerror or error}", hint=write_error_hint(error)
        ) from error
    click.echo(f"wrote {path}; next: costopt plan {path}", err=True)
