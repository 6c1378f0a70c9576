"""`costopt events` and `costopt report`: what runs did, from a ledger or a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import account_option, output_option, print_table

if TYPE_CHECKING:
    from costopt.domain.fleet import ProviderCharge
    from costopt.ledger.run_view import RunView


@click.command()
@click.argument("job", required=False)
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this number.")
@source_options
@output_option
def events(job: str | None, after: int, source: OpenSource, output: str) -> None:
    """List the events in the ledger.

    Every event has a number; the json form holds every field of each event.
    """
    from costopt.views.event import events_table

    with source() as runs:
        recorded = runs.events if job is None else runs.job(job).events
        print_table(events_table(recorded(after=after)), output)


@click.command()
@click.argument("job")
@account_option
@source_options
@output_option
@click.pass_context
def report(
    context: click.Context, job: str, account: str | None, source: OpenSource, output: str
) -> None:
    """Show what a job did and what it cost.

    --output html is one page that needs nothing but a browser: the nodes over time, dollars and
    energy against on-demand, progress against the deadline, and every event. With --account on the
    command line, the ledger is compared with what the account's providers billed.
    """
    from costopt.ledger.run_view import RunView
    from costopt.render.reports.run import run_page
    from costopt.views.bill import ledger_drift
    from costopt.views.job import job_table

    with source() as runs:
        known = runs.job(job)
        recorded, now = [each.event for each in known.events()], known.now()
    run = RunView.of(recorded, now)
    # Asking for a bill may cost money, so that the account of the environment alone is not asked.
    asked = context.get_parameter_source("account") is ParameterSource.COMMANDLINE
    charges = _charges(account, run) if account and asked else []
    for charge in charges:
        click.echo(ledger_drift(charge, run), err=True)

    def page() -> str:
        return run_page(recorded, now=now, title=job, charges=charges)

    print_table(job_table({"summary": run.summary}, output), output, page)


def _charges(account_file: str, run: RunView) -> list[ProviderCharge]:
    """Return the charges of each provider that reports them; print a note for one that cannot be
    reached."""
    from costopt.controller.account_site import connect_account
    from costopt.domain.errors import ProviderError
    from costopt.engine.loop import WallClock
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
