"""costopt report"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.options import complete_file
from costopt.cli.state import state_dir_option

if TYPE_CHECKING:
    from costopt.domain.bill import ProviderCharge
    from costopt.render.run_tables import RunView


@click.command()
@click.argument("job")
@state_dir_option
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it; JOB.html if not given.",
)
@click.option(
    "--account",
    shell_complete=complete_file,
    metavar="FILE",
    help="Ask this account's providers what they billed, and tell how far the ledger is off.",
)
def report(job: str, state_dir: Path, to: Path | None, account: str | None) -> None:
    """Write a job's report as one HTML file.

    It holds the nodes over time, dollars and energy against on-demand, progress against the
    deadline and every event, and needs nothing but a browser. Prints the file's path.
    """
    from costopt.cli.ledger_view import job_events
    from costopt.render.html import require_report_extra
    from costopt.render.run_report import write_run_report
    from costopt.render.run_tables import RunView, ledger_drift

    require_report_extra()
    recorded, now = job_events(state_dir, job)
    run = RunView.of(recorded, now)
    charges = [] if account is None else _charges(account, run)
    for charge in charges:
        click.echo(ledger_drift(charge, run), err=True)
    path = write_run_report(
        recorded, to or Path(f"{job}.html"), now=now, title=job, charges=charges
    )
    click.echo(path)


def _charges(account_file: str, run: RunView) -> list[ProviderCharge]:
    """What each provider that keeps accounts has billed; one that does not answer says so."""
    from costopt.controller.account_site import connect_account
    from costopt.domain.errors import ProviderError
    from costopt.engine.clock import WallClock
    from costopt.planning.request import load_account
    from costopt.provider.base import Capability

    account, charges = load_account(account_file), []
    for provider in connect_account(account, (), WallClock()):
        try:
            if Capability.CHARGES not in provider.capabilities():
                continue
            job = run.summary.job
            charge = provider.charge(account.owner, job, run.begun_at, run.ended_at)
        except ProviderError as error:
            click.echo(f"not compared with the bill: {error}", err=True)
            continue
        finally:
            provider.close()
        if charge is None:
            names = ", ".join(sorted(provider.names))
            click.echo(f"the accounts of {names} hold nothing of job {job!r} yet", err=True)
        else:
            charges.append(charge)
    return charges
