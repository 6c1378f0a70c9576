"""costopt plan"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from costopt.cli.failure import print_error
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    check_price_source,
    job_argument,
    market_option,
    policy_option,
    provider_option,
)
from costopt.cli.output import output_option, print_table
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.planning.quotes import QuoteSet


@click.command()
@job_argument
@policy_option
@market_option
@at_option
@carbon_option
@account_option
@provider_option
@click.option("--top", type=click.IntRange(min=0), default=10, metavar="N",
              help="Candidates to list besides the chosen ones; 0 lists all.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say why each excluded offer is out, and what binds.")
@output_option
def plan(
    job: str, policy: str, market: Path | None, at: datetime | None, carbon: Path | None,
    account: str | None, providers: tuple[str, ...], top: int, explain: bool, output: str,
) -> None:  # fmt: skip
    """Choose pools, nodes and hours for a job.

    The table judges every pool as if it did the whole job: ✔ marks what the plan uses, and the
    others say why not. Dollars and finish are the median and the 95th percentile under the hazard.
    Exits with 3 and the binding constraint where no plan keeps the deadline and the budget, with 5
    where every price is too old.
    """
    from costopt.planning.quotes import resolve_quotes
    from costopt.planning.request import carbon_notes, load_account, load_checked_policy
    from costopt.spec import load_job

    chosen_policy = load_checked_policy(policy)
    shared = load_account(account)
    check_price_source(market, at, providers)
    seen = resolve_quotes(market, at, carbon, shared, providers)
    task = load_job(job, seen.now, shared)
    for note in (*seen.notes, seen.origin, *carbon_notes(seen, chosen_policy, task.deadline_at)):
        print_error("note", note)
    print_plan(task, chosen_policy, seen, output, top=top, explain=explain, account=shared)


def print_plan(
    job: Job,
    policy: Policy,
    seen: QuoteSet,
    output: str,
    *,
    top: int = 10,
    explain: bool = False,
    account: Account = UNLIMITED,
) -> None:
    """Write the plan to stdout.

    Raises InfeasibleError after that where there is none, StaleDataError where every price that
    the policy allows is too old.
    """
    from costopt.planning.request import plan_job, raise_if_infeasible
    from costopt.render.plan_table import plan_table

    made = plan_job(job, policy, seen, account=account)
    print_table(plan_table(made, job, policy, top, explain), output)
    raise_if_infeasible(made, job)
