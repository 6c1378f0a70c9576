"""`costopt plan` and `costopt what-if`: choose capacity for a job, and compare scenarios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import click

from costopt.cli.connection import planned_server_options
from costopt.cli.errors import print_error
from costopt.cli.many_jobs import (
    check_only,
    find_job_files,
    print_account_plan,
    print_account_what_if,
    print_impact,
    raise_if_stale,
    refuse_options,
)
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    check_price_source,
    complete_policy,
    duration_s,
    durations_s,
    gpus_option,
    is_live,
    jobs_argument,
    market_option,
    max_age_option,
    output_option,
    policy_option,
    print_table,
    provider_option,
    region_option,
    restrict,
    spot_option,
    words,
)
from costopt.domain.account import Account
from costopt.domain.errors import InfeasibleError
from costopt.domain.job import Job
from costopt.planning.forecast.replays import MAX_REPLAYS, VERIFY_LIMIT_S
from costopt.planning.what_if import POLICY_TERMS, TERMS
from costopt.render.table import OutputFormat

if TYPE_CHECKING:
    from costopt.api.inputs import Market
    from costopt.api.plans import PlanResult
    from costopt.planning.restriction import Restriction
    from costopt.planning.what_if import Capacity


@click.command()
@jobs_argument
@policy_option
@market_option
@at_option
@max_age_option
@carbon_option
@account_option
@provider_option
@region_option
@gpus_option
@spot_option
@click.option("--top", type=click.IntRange(min=0), default=10, metavar="N",
              help="Candidates to list besides the chosen ones; 0 lists all.")  # fmt: skip
@click.option(
    "--explain", is_flag=True, help="Show why offers were excluded and which constraints bind."
)
@click.option("--verify", type=click.IntRange(1, MAX_REPLAYS), default=None, metavar="N",
              help=f"Replay the job on the engine in N sampled futures, {MAX_REPLAYS} at most, and "
              "show their outcome beside the forecast.")  # fmt: skip
@click.option("--verify-limit", "verify_limit_s", callback=duration_s, metavar="DURATION",
              default=f"{VERIFY_LIMIT_S:g}s",
              help="How long the replays may take; those that are done count.")  # fmt: skip
@planned_server_options
@output_option
@click.pass_context
def plan(
    context: click.Context, jobs: tuple[str, ...], policy: str, market: Path | None,
    at: datetime | None, max_age_s: float | None,
    carbon: Path | None, account: str | None, providers: tuple[str, ...],
    regions: tuple[str, ...], gpus: str | None, spot: bool | None, top: int, explain: bool,
    verify: int | None, verify_limit_s: float,
    server: str | None, token_file: Path | None, output: str,
) -> None:  # fmt: skip
    """Choose pools, nodes and hours for jobs.

    The table rates every pool as if it did the whole job: ✔ marks what the plan uses, and the
    others show why not. Dollars are expected, and with P95 what 5 % of the runs exceed.
    Exits with 3 and the binding constraint if no plan meets the deadline and the budget, with 5 if
    every price is too old.

    Several jobs, or all in a FOLDER, share the quotas of --account and the policy's limits: a row
    per job, and one per limit with who holds it and who pays for it. Exits with 3 if some job is
    not served. With --server the job is planned beside those that a daemon runs, under one policy:
    what it would change for them. Nothing is submitted.
    """
    from costopt.api import plans

    files = find_job_files(jobs)
    if server is not None:
        check_only(context, "jobs", "policy", "server", "token_file", "output")
        print_impact(files, policy, server, token_file, output)
        return
    restriction = restrict(providers, regions, spot)
    read = _read_inputs(files, market, account, at, restriction, gpus, carbon, max_age_s)
    capacity = restriction.capacity
    if len(read.jobs) > 1:
        from costopt.api import many_jobs

        refuse_options("top", "explain", "verify", "verify_limit_s")
        _print_times(read.jobs)
        together = many_jobs.plan_jobs(read.jobs, policy, capacity=capacity, **read.prices)
        print_account_plan(together, output)
        return
    made = plans.plan(
        read.jobs[0],
        policy,
        capacity=capacity,
        verify=verify or 0,
        verify_limit_s=verify_limit_s,
        **read.prices,
    )
    print_plan(made, output, top=top, explain=explain)


def print_plan(result: PlanResult, output: str, *, top: int = 10, explain: bool = False) -> None:
    """Write the notes to stderr and the plan to stdout. Raise InfeasibleError if there is none."""
    from costopt.planning.request import raise_if_infeasible
    from costopt.render.reports.plan import plan_page
    from costopt.views.plan import plan_table

    for note in result.notes:
        print_error("note", note)
    table = plan_table(
        result.plan,
        result.job,
        result.policy,
        top,
        explain,
        account=result.account,
        options=output != OutputFormat.HTML,
        verification=result.verification,
    )
    print_table(table, output, lambda: plan_page(result.plan, table))
    raise_if_infeasible(result.plan, result.job)


def _terms(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    chosen = words(text)
    for word in chosen:
        if word not in TERMS:
            allowed = ", ".join(TERMS)
            raise click.BadParameter(f"{word!r} is none of {allowed}", context, option)
    return chosen


def _shares(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...]:
    """Shares from 0 to 1, separated by commas, also as percentages."""
    return tuple(_share(context, option, word) for word in words(text or ""))


def _share(context: click.Context, option: click.Parameter, word: str) -> float:
    try:
        share = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise click.BadParameter(f"{word!r} is not a share from 0 to 100%", context, option)
    return share


@click.command()
@jobs_argument
@click.option("--policies", default="cheapest,balanced,greenest,on-demand", metavar="A,B,…",
              shell_complete=complete_policy, help="Shipped policies or policy files.")  # fmt: skip
@click.option("--deadlines", callback=durations_s, metavar="24h,48h,…",
              help="Durations from the start; default: the job's deadline.")  # fmt: skip
@click.option("--capacity", callback=_terms, default=POLICY_TERMS, metavar="TERMS",
              help="spot, on_demand, both, or policy: as each policy says.")  # fmt: skip
@click.option("--tolerance", callback=_shares, metavar="0,5%,…",
              help="By how much the objective may be worse to save energy, or what the policy "
              "aims at next.")  # fmt: skip
@click.option("--points", type=click.IntRange(0, 100), default=24,
              help="Points of the frontier of the first policy; 0: none.")  # fmt: skip
@market_option
@at_option
@max_age_option
@carbon_option
@account_option
@provider_option
@region_option
@gpus_option
@spot_option
@output_option
def what_if(
    jobs: tuple[str, ...], policies: str, deadlines: tuple[float, ...] | None,
    capacity: tuple[Capacity, ...],
    tolerance: tuple[float, ...], points: int, market: Path | None, at: datetime | None,
    max_age_s: float | None, carbon: Path | None, account: str | None,
    providers: tuple[str, ...], regions: tuple[str, ...], gpus: str | None, spot: bool | None,
    output: str,
) -> None:  # fmt: skip
    """Compare policies, deadlines and capacity types.

    Each scenario is planned alone and simulated with the same random draws. With --tolerance the
    changes are those from the first tolerance. ★: no other saves
    dollars or kilowatt-hours, beyond the simulation's noise, at no more of the other. Below it is
    the frontier of the first policy at the job's own deadline: Pareto-optimal plans in dollars, kWh
    and finish time, by ascending dollars; --output html draws it. Exits with 3 if no scenario is
    feasible, with 5 if every price is too old. Of several jobs, or all in a FOLDER, each scenario
    is a plan of them together, and its row their totals.
    """
    from costopt.api import plans

    chosen = words(policies)
    if not chosen or not capacity:
        raise click.UsageError("there is nothing to compare: name a policy and terms")
    restriction = restrict(providers, regions, spot)
    if spot is not None:
        if capacity != (POLICY_TERMS,):
            raise click.UsageError("--capacity names what to compare: leave out --spot/--on-demand")
        capacity = (restriction.capacity,)
    read = _read_inputs(
        find_job_files(jobs), market, account, at, restriction, gpus, carbon, max_age_s
    )
    _print_times(read.jobs)
    if len(read.jobs) > 1:
        refuse_options("tolerance", "points")
        from costopt.api import many_jobs

        together = many_jobs.what_if_jobs(
            read.jobs, chosen, deadlines=deadlines or (), capacity=capacity, **read.prices
        )
        print_account_what_if(together, output)
        return
    result = plans.what_if(
        read.jobs[0],
        chosen,
        deadlines=deadlines or (),
        capacity=capacity,
        tolerances=tolerance,
        points=points,
        **read.prices,
    )
    for note in result.notes:
        print_error("note", note)
    print_table(result.table(), output, result.to_html)
    raise_if_stale(result.scenarios)
    if all(scenario.forecast is None for scenario in result.scenarios):
        raise InfeasibleError(f"no scenario finishes {result.job.name} in time")


def _print_times(jobs: Sequence[Job]) -> None:
    """Say how times were read, where no table of the job does."""
    for job in jobs:
        for note in job.time_notes:
            print_error("note", f"{job.name}: {note}")


class _Prices(TypedDict):
    """Where prices and limits come from: arguments of every plan in `costopt.api`."""

    market: Market | Literal["live"] | None
    account: Account | None
    provider: tuple[str, ...]
    region: tuple[str, ...]
    at: datetime | None
    carbon: Path | None
    max_age_s: float | None


@dataclass(frozen=True, slots=True)
class _PlanFiles:
    jobs: tuple[Job, ...]
    prices: _Prices


def _read_inputs(
    files: Sequence[str],
    market: Path | None,
    account: str | None,
    at: datetime | None,
    restriction: Restriction,
    gpus: str | None,
    carbon: Path | None,
    max_age_s: float | None,
) -> _PlanFiles:
    """Read the files; jobs whose files name no start begin at the instant of the plan."""
    from costopt.api.inputs import load_account, load_job, read_market

    check_price_source(market, at, max_age_s)
    live = is_live(market)
    history = None if market is None or live else read_market(market)
    shared = None if account is None else load_account(account)
    default_at = datetime.now(UTC) if history is None else history.first_priced_at
    now = at or default_at
    tasks = tuple(load_job(file, now=now, account=shared, gpus=gpus) for file in files)
    prices = _Prices(
        market="live" if live else history,
        account=shared,
        provider=restriction.providers,
        region=restriction.regions,
        at=None if live else now,
        carbon=carbon,
        max_age_s=max_age_s,
    )
    return _PlanFiles(tasks, prices)
