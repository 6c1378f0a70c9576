"""costopt what-if"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.failure import print_error
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    check_price_source,
    complete_policy,
    durations_s,
    job_argument,
    market_option,
    provider_option,
    words,
)
from costopt.cli.output import output_option, print_table
from costopt.domain.errors import InfeasibleError, StaleDataError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    pool_text,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.planning.what_if import (
    POLICY_TERMS,
    TERMS,
    Scenario,
    non_dominated_scenarios,
    plan_scenarios,
)
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.optimize.frontier import FrontierPoint


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
              help="Write an HTML report with the frontier's picture here as well.")  # fmt: skip
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
    """Compare policies, deadlines and terms.

    Each scenario is planned by itself and simulated with the same random draws. ★: no other saves
    dollars or kilowatt-hours, beyond the simulation's noise, at no more of the other. Below stands
    the frontier of the first policy at the job's own deadline: plans that no other beats in
    dollars, kilowatt-hours and finish at once, by ascending dollars; --report draws it.
    Exits with 3 where no scenario is feasible, with 5 where every price is too old.
    """
    from costopt.cli.what_if_frontier import check_report, write_report
    from costopt.planning.quotes import resolve_quotes
    from costopt.planning.request import (
        carbon_notes,
        load_account,
        load_checked_policy,
        plan_frontier,
        plan_job,
    )
    from costopt.spec import load_job

    chosen = [load_checked_policy(name) for name in words(policies)]
    if not chosen or not capacity:
        raise click.UsageError("there is nothing to compare: name a policy and terms")
    if report is not None:
        check_report(report)
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
    table = _table(planned_job, chosen[0], scenarios, frontier)
    print_table(table, output)
    if report is not None:
        own = (
            plan_job(planned_job, chosen[0], seen, explain=False, account=shared)
            if frontier
            else None
        )
        write_report(
            table, frontier, report, job=planned_job, policy=chosen[0], plan=own, now=seen.now
        )
        click.echo(f"report: {report}", err=True)
    stale = [scenario.why_not or "" for scenario in scenarios if scenario.stale]
    if len(stale) == len(scenarios):
        raise StaleDataError(f"no scenario can be planned: {stale[0]}")
    if all(scenario.forecast is None for scenario in scenarios):
        raise InfeasibleError(f"no scenario finishes {planned_job.name} in time")


def _due(job: Job, deadline_s: float | None, now: datetime) -> Job:
    if deadline_s is None:
        return job
    deadline_at = job.start_at + timedelta(seconds=deadline_s)
    if deadline_at <= max(now, job.start_at):
        raise click.BadParameter(f"a deadline of {seconds_text(deadline_s)} is in the past")
    return replace(job, deadline_at=deadline_at)


def _table(
    job: Job,
    policy: Policy,
    scenarios: Sequence[Scenario],
    frontier: Sequence[FrontierPoint],
) -> Table:
    from costopt.cli.what_if_frontier import frontier_notes, frontier_row

    unbeaten = set(non_dominated_scenarios(scenarios))
    feasible = sum(scenario.forecast is not None for scenario in scenarios)
    return Table(
        schema="costopt.what-if/1",
        title=f"{len(scenarios)} scenarios for {job.name}, {feasible} feasible",
        columns=_COLUMNS,
        rows=[_row(scenario, index in unbeaten) for index, scenario in enumerate(scenarios)],
        facts={"job": job.name, "frontier": [frontier_row(each) for each in frontier]},
        notes=(
            "★: no other saves dollars or kWh, beyond the simulation's noise, "
            "at no more of the other.",
            "– is unknown.",
            *frontier_notes(policy, frontier),
        ),
    )


def _row(scenario: Scenario, unbeaten: bool) -> Row:
    from costopt.cli.plan_table import forecast_row

    plan, job, forecast = scenario.plan, scenario.job, scenario.forecast
    used = plan.allocations if plan and forecast else ()
    return {
        "unbeaten": unbeaten,
        "policy": scenario.policy.name,
        "deadline_s": (job.deadline_at - job.start_at).total_seconds(),
        "deadline_at": job.deadline_at,
        "capacity": scenario.terms,
        "status": plan.status if plan else None,
        "pools": list(dict.fromkeys(str(each.pool) for each in used)),
        "node_hours": sum(each.node_hours for each in used) if used else None,
        **(forecast_row(forecast) if forecast else {}),
        "why_not": None if forecast else scenario.why_not,
    }


def _star(unbeaten: bool) -> str:
    return "★" if unbeaten else ""


def _lines(pools: Sequence[str]) -> str:
    return ",\n".join(map(pool_text, pools))


_COLUMNS = (
    Column("unbeaten", "", _star),
    Column("policy", "Policy"),
    Column("deadline_s", "Deadline", seconds_text, right=True),
    Column("capacity", "Terms"),
    Column("usd_p50", "$ P50", usd_text, right=True),
    Column("usd_p95", "$ P95", usd_text, right=True, rank=3),
    Column("kwh", "kWh", number_text, right=True),
    Column("gco2e", "CO2e", gco2e_text, right=True, rank=2),
    Column("finish_p50_at", "Finish P50", minute_text, rank=4),
    Column("on_time", "P(on time)", probability_text, right=True, interval=True),
    Column("node_hours", "Node-hours", number_text, right=True, rank=6),
    Column("pools", "Pools", _lines, fold_at=60, rank=5),
    Column("why_not", "Why not", fold_at=60, unknown=""),
    Column("status", "Status", detail=True),
    Column("deadline_at", "Deadline at", minute_text, detail=True),
    Column("kwh_low", "kWh low", number_text, detail=True),
    Column("kwh_high", "kWh high", number_text, detail=True),
    Column("energy_basis", "Energy basis", detail=True),
    Column("finish_p95_at", "Finish P95", minute_text, detail=True),
    Column("expected_interruptions", "Interruptions", number_text, detail=True),
    Column("falls_back", "P(fallback)", probability_text, detail=True, interval=True),
)
