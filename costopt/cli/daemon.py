"""`costopt daemon`: runs a daemon and controls it; `restore` restores its corrupt files."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import click

from costopt.cli.groups import CommandEntry, LazyGroup
from costopt.cli.options import (
    DAY_S,
    Number,
    account_option,
    at_option,
    carbon_option,
    cooldown_option,
    forecasts_option,
    interval_or_none_s,
    interval_s,
    is_live,
    market_option,
    notice_option,
    provider_option,
    speed_option,
    state_dir_option,
    tick_option,
)

LISTEN = "127.0.0.1:8420"
REQUIRED_MODULES = (
    "apscheduler",
    "fastapi",
    "prometheus_client",
    "sqlalchemy",
    "uvicorn",
)


COMMANDS = {
    "run": CommandEntry("costopt.cli.daemon", "run", "Run submitted jobs, for months."),
    "mode": CommandEntry("costopt.cli.operate", "mode", "Show or set the daemon's mode."),
    "halt": CommandEntry("costopt.cli.operate", "halt", "Stop all launches of a daemon at once."),
    "unhalt": CommandEntry(
        "costopt.cli.operate", "unhalt", "Allow a halted daemon to launch again."
    ),
    "approve": CommandEntry(
        "costopt.cli.operate", "approve", "Approve actions that a daemon proposed."
    ),
    "token": CommandEntry(
        "costopt.cli.operate", "token", "Create, list and revoke tokens for a daemon."
    ),
    "restore": CommandEntry("costopt.cli.daemon", "restore", "Restore a daemon's corrupt files."),
    "slurm": CommandEntry(
        "costopt.cli.slurm", "slurm", "Power the cloud nodes of a Slurm cluster up and down."
    ),
}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS}, default="run")
def daemon() -> None:
    """Run submitted jobs, for months; control a daemon.

    Without a command, `costopt daemon` starts a daemon, as `costopt daemon run` does, whose options
    it has.
    """


HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _host_names(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,
    names: tuple[str, ...],
) -> tuple[str, ...]:
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise click.BadParameter(
                f"{name!r} is not the name of a host; write it without scheme and port, such as "
                "costopt.example.com or *.example.com",
                param=parameter,
            )
    return names


@click.command(context_settings={"auto_envvar_prefix": "COSTOPT_DAEMON"})
@state_dir_option
@account_option
@provider_option
@market_option
@at_option
@speed_option
@notice_option
@cooldown_option
@forecasts_option
@carbon_option
@tick_option
@click.option(
    "--mode",
    type=click.Choice(["observe", "recommend", "enforce"]),
    default="observe",
    help="Initial mode; change it later with costopt daemon mode.",
)
@click.option(
    "--listen",
    default=LISTEN,
    metavar="ADDRESS",
    help="HOST:PORT or unix:PATH for the API and the pages; none: the socket in the state "
    "directory alone.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    callback=_host_names,
    help="A name under which the daemon is asked over the network, such as that of a proxy in "
    "front of it; *.example.com: any below. localhost and addresses always are.",
)
@click.option(
    "--database",
    metavar="URL",
    help="PostgreSQL for ledger and registry; files in the state directory if not given.",
)
@click.option(
    "--lease",
    "lease_s",
    type=Number(0.5, DAY_S),
    default=15.0,
    help="Lease duration in seconds; a standby on the same PostgreSQL takes over when it expires.",
)
@click.option(
    "--report-every",
    "report_s",
    callback=interval_s,
    default="1d",
    metavar="DURATION",
    help="Interval between reports in the state directory's reports/.",
)
@click.option(
    "--keep-reports", type=click.IntRange(min=1), default=30, help="Number of reports to retain."
)
@click.option(
    "--refresh-prices",
    "price_lists_s",
    callback=interval_or_none_s,
    default="6h",
    metavar="DURATION",
    help="Interval between refreshes of the public price lists, for costopt plan; none: never.",
)
@click.option(
    "--webhooks",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="YAML file listing the webhooks that receive alerts.",
)
@click.option(
    "--log",
    type=click.Choice(["text", "json"]),
    default="text",
    help="text: messages for an operator; json: every event as well, with its decision's ID.",
)
def run(
    state_dir: Path,
    account: str | None,
    providers: tuple[str, ...],
    market: Path | None,
    at: datetime | None,
    speed: float,
    notice_s: float | None,
    cooldown_s: float,
    forecasts: bool,
    carbon: Path | None,
    tick_s: float,
    mode: str,
    listen: str,
    allowed_hosts: tuple[str, ...],
    database: str | None,
    lease_s: float,
    report_s: float,
    keep_reports: int,
    price_lists_s: float | None,
    webhooks: str | None,
    log: str,
) -> None:
    """Run submitted jobs, for months.

    Jobs are submitted with `costopt submit`. By default the daemon only observes: it plans, and
    records what it would do; --mode recommend or enforce goes further. SIGTERM and Ctrl-C finish
    the tick and leave all nodes running; a daemon that is started again takes them over.
    """
    _check_extra()
    from costopt.cli.simulation import Simulation, resolve_run_target
    from costopt.daemon.serve import serve
    from costopt.daemon.settings import DaemonSettings, TaskInterval, TaskIntervals
    from costopt.daemon.watch.json_log import log_as_json
    from costopt.daemon.watch.notifications import NotificationConfig
    from costopt.daemon.watch.webhooks import Webhooks, read_webhooks
    from costopt.domain.control import Mode
    from costopt.planning.request import load_account

    shared = load_account(account)
    simulation = Simulation(at, speed, notice_s, forecasts)
    if market is not None and not is_live(market) and providers:
        raise click.UsageError("--provider is for the account's clouds, --market a simulation")
    source = resolve_run_target(market, shared, providers, simulation, carbon)
    settings = DaemonSettings(
        state_dir=state_dir,
        mode=Mode(mode),
        tick_s=tick_s,
        cooldown_s=cooldown_s,
        database=database,
        lease_s=lease_s,
        reports=keep_reports,
        schedule=TaskIntervals(
            report=TaskInterval(report_s, report_s / 100),
            price_lists=None
            if price_lists_s is None
            else TaskInterval(price_lists_s, price_lists_s / 10),
        ),
        listen=None if listen == "none" else listen,
        allowed_hosts=allowed_hosts,
    )
    hooks = Webhooks(read_webhooks(webhooks)) if webhooks else None
    say = _say if log == "text" else log_as_json().info
    serve(source.site, shared, settings, say, NotificationConfig(hooks, events=log == "json"))


def _check_extra() -> None:
    """Raise MissingExtraError if a package that the daemon needs is not installed."""
    from importlib.util import find_spec

    from costopt.domain.errors import MissingExtraError, install_hint

    missing = [name for name in REQUIRED_MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the daemon needs {', '.join(missing)}",
            hint=install_hint("daemon"),
            code="missing_module",
        )


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command()
@state_dir_option
def restore(state_dir: Path) -> None:
    """Restore a daemon's corrupt files.

    The newest sound backup of each file that is corrupt or lost takes its place; events of the
    ledger that are newer and can still be read are added to it. The corrupt file stays beside it. A
    file that is sound is left alone. Stop the daemon first.
    """
    from datetime import UTC, datetime

    from costopt.daemon.loop.backups import Backups

    restored = Backups(state_dir, keep=1).restore(datetime.now(UTC))
    if not restored:
        click.echo(f"nothing to restore: what lies in {state_dir} is sound", err=True)
    for file in restored:
        click.echo(f"{file.file} is as it was at {file.copied_at:%Y-%m-%d %H:%M:%S} UTC")
        if file.events:
            click.echo(f"  and {file.events} later events were saved")
        if file.damaged is not None:
            click.echo(f"  the corrupt file is {file.damaged}", err=True)
