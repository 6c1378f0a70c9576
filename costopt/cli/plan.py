"""`costopt plan` and `costopt what-if`: choose capacity for a job, and compare scenarios."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    check_price_source,
    complete_policy,
    durations_s,
    job_argument,
    market_option,
    policy_option,
    provider_option,
    words,
)
from costopt.cli.output import output_option, print_table
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import InfeasibleError, StaleDataError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.formatting import (
    seconds_text,
)
from costopt.planning.quotes import QuoteSet
from costopt.planning.what_if import (
    POLICY_TERMS,
    TERMS,
    plan_scenarios,
)


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
@click.option(
    "--explain", is_flag=True, help="Show why offers were excluded and which constraints bind."
)
@output_option
def plan(
    job: str, policy: str, market: Path | None, at: datetime | None, carbon: Path | None,
    account: str | None, providers: tuple[str, ...], top: int, explain: bool, output: str,
) -> None:  # fmt: skip
    """Choose pools, nodes and hours for a job.

    The table rates every pool as if it did the whole job: ✔ marks what the plan uses, and the
    others show why not. Dollars and finish are the median and the 95th percentile under the hazard.
    Exits with 3 and the binding constraint if no plan meets the deadline and the budget, with 5 if
    every price is too old.
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

    Raise InfeasibleError after that if there is none, StaleDataError if every price that the policy
    allows is too old.
    """
    from costopt.planning.request import plan_job, raise_if_infeasible
    from costopt.render.plan_table import plan_table

    made = plan_job(job, policy, seen, account=account)
    print_table(plan_table(made, job, policy, top, explain), output)
    raise_if_infeasible(made, job)


def _terms(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    chosen = words(text)
    for word in chosen:
        if word not in TERMS:
            allowed = ", ".join(TERMS)
            raise click.BadParameter(f"{word!r} is none of {allowed}", context, option)
    return chosen


@click.command()
@job_argument
@click.option("--policies", default="cheapest,balanced,greenest,on-demand", metavar="A,B,…",
              shell_complete=complete_policy, help="Shipped policies or policy files.")  # fmt: skip
@click.option("--deadlines", callback=durations_s, metavar="24h,48h,…",
              help="Durations from the start; default: the job's deadline.")  # fmt: skip
@click.option("--capacity", callback=_terms, default=POLICY_TERMS, metavar="TERMS",
              help="spot, on_demand, both, or policy: as each policy says.")  # fmt: skip
@click.option("--points", type=click.IntRange(0, 100), default=24,
              help="Points of the frontier of the first policy; 0: none.")  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write an HTML report with the chart of the frontier here.")  # fmt: skip
@market_option
@at_option
@carbon_option
@account_option
@provider_option
@output_option
def what_if(
    job: str, policies: str, deadlines: tuple[float, ...] | None, capacity: tuple[str, ...],
    points: int, market: Path | None, at: datetime | None, carbon: Path | None,
    account: str | None, providers: tuple[str, ...], report: Path | None, output: str,
) -> None:  # fmt: skip
    """Compare policies, deadlines and capacity types.

    Each scenario is planned alone and simulated with the same random draws. ★: no other saves
    dollars or kilowatt-hours, beyond the simulation's noise, at no more of the other. Below it is
    the frontier of the first policy at the job's own deadline: Pareto-optimal plans in dollars, kWh
    and finish time, by ascending dollars; --report draws it. Exits with 3 if no scenario is
    feasible, with 5 if every price is too old.
    """
    from costopt.planning.quotes import resolve_quotes
    from costopt.planning.request import (
        carbon_notes,
        load_account,
        load_checked_policy,
        plan_frontier,
        plan_job,
    )
    from costopt.render.plan_table import what_if_table
    from costopt.spec import load_job

    chosen = [load_checked_policy(name) for name in words(policies)]
    if not chosen or not capacity:
        raise click.UsageError("there is nothing to compare: name a policy and terms")
    if report is not None:
        _check_report(report)
    shared = load_account(account)
    check_price_source(market, at, providers)
    seen = resolve_quotes(market, at, carbon, shared, providers)
    planned_job = load_job(job, seen.now, shared)
    notes = [
        each for policy in chosen for each in carbon_notes(seen, policy, planned_job.deadline_at)
    ]
    for note in dict.fromkeys((*seen.notes, seen.origin, *notes)):
        print_error("note", note)
    jobs = [_due(planned_job, deadline_s, seen.now) for deadline_s in deadlines or (None,)]
    scenarios = plan_scenarios(jobs, chosen, capacity, seen, shared)
    frontier = plan_frontier(planned_job, chosen[0], seen, points, shared) if points else ()
    table = what_if_table(planned_job, chosen[0], scenarios, frontier)
    print_table(table, output)
    if report is not None:
        from costopt.render.frontier import write_what_if_report
        from costopt.render.frontier_table import frontier_rows

        own = (
            plan_job(planned_job, chosen[0], seen, explain=False, account=shared)
            if frontier
            else None
        )
        rows = frontier_rows(frontier, planned_job, own, seen.now)
        title = f"What if: {planned_job.name}"
        write_what_if_report(rows, table, report, policy=chosen[0].name, title=title)
        click.echo(f"report: {report}", err=True)
    stale = [scenario.why_not or "" for scenario in scenarios if scenario.stale]
    if len(stale) == len(scenarios):
        raise StaleDataError(f"no scenario can be planned: {stale[0]}")
    if all(scenario.forecast is None for scenario in scenarios):
        raise InfeasibleError(f"no scenario finishes {planned_job.name} in time")


def _check_report(path: Path) -> None:
    """Raise MissingExtraError or UsageError if the report cannot be written."""
    from costopt.render.html import require_report_extra

    require_report_extra()
    if not path.parent.is_dir():
        raise click.UsageError(f"--report {path}: there is no folder {path.parent}")


def _due(job: Job, deadline_s: float | None, now: datetime) -> Job:
    if deadline_s is None:
        return job
    deadline_at = job.start_at + timedelta(seconds=deadline_s)
    if deadline_at <= max(now, job.start_at):
        raise click.BadParameter(f"a deadline of {seconds_text(deadline_s)} is in the past")
    return replace(job, deadline_at=deadline_at)
