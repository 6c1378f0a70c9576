"""`costopt fleet`: replays recorded jobs on a cluster under several policies, and sizes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from costopt.cli.groups import CommandEntry, LazyGroup
from costopt.cli.options import Number, duration_s, instant, output_option, print_table, words

if TYPE_CHECKING:
    from costopt.backtesting.fleet.policies import FleetTrial
    from costopt.backtesting.fleet.sizing import FleetSize
    from costopt.optimize.rounds.gangs import SpeedCurve

FILE = click.Path(dir_okay=False, path_type=Path)
POLICY_NAMES = ("static", "fifo", "easy", "attained-service", "gittins", "srpt-oracle", "priced")
"""Those of costopt.backtesting.fleet.policies, which is imported on use; a test compares them."""
Command = TypeVar("Command", bound=Callable[..., object])


COMMANDS = {
    "workloads": CommandEntry(
        "costopt.cli.workload", "workloads", "Import and show records of a cluster's jobs."
    ),
    "replay": CommandEntry(
        "costopt.cli.fleet", "replay", "Replay recorded jobs under several policies."
    ),
    "size": CommandEntry(
        "costopt.cli.fleet",
        "size",
        "Find the fewest GPUs on which jobs complete as early as in their tenants' partitions.",
    ),
}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS})
def fleet() -> None:
    """Replay many jobs on a cluster that they share.

    A workload is what costopt fleet workloads import writes. A cluster file names nodes:

    \b
    kind: cluster
    name: lab
    nodes: [{count: 75, gpus: 8}]
    """


def _trial_options(command: Command) -> Command:
    """The options that say which jobs are replayed on what."""
    for option in reversed(
        (
            click.option("--workload", "jobs", type=FILE, required=True, metavar="FILE",
                         help="The jobs, as fleet workloads import writes them."),
            click.option("--cluster", type=FILE, required=True, metavar="FILE",
                         help="The cluster's file."),
            click.option("--from", "from_at", callback=instant, metavar="TIME",
                         help="Replay jobs submitted from here on; default: all."),
            click.option("--days", type=Number(0, 3660, min_open=True),
                         help="How many days of them; default: all."),
            click.option("--without-tenants", default="", metavar="A,B,…",
                         help="Leave out the jobs of these tenants."),
            click.option("--restart", "restart_s", callback=duration_s, default="60s",
                         metavar="DURATION", help="What a resize or preemption costs a job."),
            click.option("--speed", default="0.85,0.68", metavar="BELOW,ABOVE",
                         help="Exponents of the speed assumed of jobs without measured ones, on "
                         "fewer and on more GPUs than they asked for."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_trial_options
@click.option(
    "--policies", default=",".join(POLICY_NAMES), metavar="A,B,…", help="Policies to compare."
)
@click.option("--ray", metavar="ADDRESS",
              help="Run the policies on this Ray cluster; local starts one here.")  # fmt: skip
@output_option
def replay(
    jobs: Path, cluster: Path, from_at: datetime | None, days: float | None, without_tenants: str,
    restart_s: float, speed: str, policies: str, ray: str | None, output: str,
) -> None:  # fmt: skip
    """Replay recorded jobs under several policies.

    \b
    static            each tenant in a partition of its own, EASY backfill
    fifo, easy        one queue for all; EASY backfill knows all durations
    attained-service  preempts; those that have had least GPU-time first
    gittins           preempts; those likely to end soonest by past durations first
    srpt-oracle       preempts; those that do end soonest first
    priced            shrinks, grows and preempts by the price of a GPU, and places every gang

    --output csv and json hold all figures, by tenant too.
    """
    from costopt.backtesting.fleet.policies import replay_fleet
    from costopt.spec.fields import did_you_mean
    from costopt.views.fleet import fleet_table

    chosen = tuple(dict.fromkeys(words(policies)))
    for name in chosen:
        if name not in POLICY_NAMES:
            raise click.BadParameter(
                f"there is no policy {name!r}{did_you_mean(name, POLICY_NAMES)}",
                param_hint="'--policies'",
            )
    if not chosen:
        raise click.UsageError("nothing to try: --policies is empty")
    trial = _trial(jobs, cluster, from_at, days, without_tenants, restart_s, speed)
    result = replay_fleet(trial, chosen, ray)
    title = (
        f"{trial.workload.title}: {len(trial.workload.jobs):,} jobs of {trial.days:g} days on "
        f"{trial.cluster.name}"
    )

    def page() -> str:
        from costopt.render.reports.fleet import fleet_page

        return fleet_page(result.figures, title=title, notes=result.notes)

    print_table(fleet_table(result.figures, title, result.notes), output, page)


@click.command()
@_trial_options
@click.option("--policy", type=click.Choice([each for each in POLICY_NAMES if each != "static"]),
              default="priced", help="The policy to size for.")  # fmt: skip
@click.option("--jct-as", expose_value=False, type=click.Choice(["static"]), default="static",
              help="Whose mean completion time to reach: the tenants' own partitions.")  # fmt: skip
@click.option("--share", type=Number(0, 10, min_open=True), default=1.0,
              help="The part of that time to reach, such as 0.5.")  # fmt: skip
@output_option
def size(
    jobs: Path, cluster: Path, from_at: datetime | None, days: float | None, without_tenants: str,
    restart_s: float, speed: str, policy: str, share: float, output: str,
) -> None:  # fmt: skip
    """Find the fewest GPUs on which jobs complete as early as in their tenants' partitions.

    Tries whole nodes of the cluster's first kind, by bisection.
    """
    from costopt.backtesting.fleet.sizing import find_fleet_size
    from costopt.views.fleet import size_table

    trial = _trial(jobs, cluster, from_at, days, without_tenants, restart_s, speed)
    tried: list[FleetSize] = []
    for each in find_fleet_size(trial, policy, share):
        if each not in tried:
            verdict = "enough" if each.is_enough else "too few"
            click.echo(f"{each.gpus:,} GPUs: {each.mean_s:,.0f} s, {verdict}", err=True)
        tried.append(each)
    static_gpus = int(trial.partitions.sum())
    print_table(size_table(tried[-1], policy, static_gpus), output)


def _trial(
    jobs: Path, cluster: Path, from_at: datetime | None, days: float | None, without_tenants: str,
    restart_s: float, speed: str,
) -> FleetTrial:  # fmt: skip
    from costopt.backtesting.fleet.policies import FleetTrial
    from costopt.backtesting.fleet.replay import ReplaySettings
    from costopt.spec.cluster_file import load_cluster
    from costopt.workload.workload_file import read_workload

    machines = load_cluster(cluster)
    recorded = read_workload(jobs)
    if left := words(without_tenants):
        recorded = recorded.without_tenants(left)
    begin_at = from_at or recorded.at(recorded.submit_s[0])
    end_s = (recorded.at(recorded.submit_s[-1]) - begin_at).total_seconds()
    span = days if days is not None else max(end_s, 1.0) / 86_400 + 1e-6
    inside, before = recorded.window(begin_at, span)
    settings = ReplaySettings(restart_s=restart_s)
    return FleetTrial(inside, before, machines, span, _curve(speed), settings)


def _curve(speed: str) -> SpeedCurve:
    from costopt.optimize.rounds.gangs import SpeedCurve

    try:
        below, above = (float(part) for part in words(speed))
    except ValueError:
        below = above = -1.0
    if not (0 < below <= 1 and 0 < above <= 1):
        raise click.BadParameter("expected two exponents above 0 and at most 1, such as 0.85,0.68",
                                 param_hint="'--speed'")  # fmt: skip
    return SpeedCurve(below=below, above=above)
