"""The plan of an account's jobs as tables: a row per job, and a row per limit that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from costopt.domain.job import Job
from costopt.domain.plan import Constraint
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    percent_text,
    pool_lines,
    pools_text,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.planning.many_jobs import AccountPlan, UnservedJob
from costopt.planning.totals import AccountScenario, AccountTotals, sum_plan
from costopt.render.table import Column, Row, Table, interval_fields, records
from costopt.views.limit import limit_name, limits_table
from costopt.views.plan import (
    ON_TIME_NOTE,
    PLAN_FACTS,
    capacity_note,
    columns_around_forecast,
)

PAID_NOTE = (
    "Paid for limits: each limit's shadow price for what the job holds of it: at most what serving "
    "it costs the others."
)
MAX_REMEDIES = 4
TOTALS = "jobs served usd kwh gco2e finish_at on_time"
ACCOUNT_FACTS = {
    "limits": "name unit used most left shadow_price",
    "uses": "limit unit job amount paid_usd",
    "allocations": f"job {PLAN_FACTS['allocations']}",
}
"""What programs get of the plan besides its jobs: the names of each row's values."""


def account_table(made: AccountPlan, *, options: bool = True) -> Table:
    """Return a row per job, then one per shared limit.

    ``options``: whether notes name the options of the command line that show more.
    """
    rows = tuple(_job_rows(made))
    totals = sum_plan(made)
    forecasts = [forecast for _, forecast in made.plan.forecasts]
    keys = "name used most left unit shadow_price holders"
    held = [each for each in made.plan.constraints if each.most is not None and each.uses]
    limits = limits_table("Limits that jobs share", keys, held)
    return Table(
        schema="costopt.account-plan/1",
        title=f"{len(made.jobs)} jobs, policy {made.policy.name}: {len(made.served)} served",
        columns=_columns(tenants=len({job.tenant for job in made.jobs}) > 1),
        rows=rows,
        facts=_facts(made, totals, limits),
        notes=(
            ON_TIME_NOTE,
            *capacity_note(forecasts),
            *((PAID_NOTE,) if any(row["limits_usd"] for row in rows) else ()),
            *chain.from_iterable(map(_unserved_notes, made.unserved)),
            *_totals_note(totals, made),
            *(("-o json has every allocation and limit.",) if options else ()),
        ),
        marks="served",
        more=(limits,) if limits.rows else (),
    )


def _columns(*, tenants: bool) -> tuple[Column, ...]:
    return columns_around_forecast(
        (
            Column("served", "", lambda served: "✔" if served else ""),
            Column("job", "Job"),
            Column("tenant", "Tenant", rank=0 if tenants else 8),
            Column("pools", "Pools", pool_lines),
        ),
        (
            Column("limits_usd", "$ for limits", usd_text, right=True, rank=2, unknown=""),
            Column("deadline_at", "Deadline", minute_text, rank=5),
        ),
        (
            Column("node_hours", "Node-hours", number_text, detail=True),
            Column("why_not", "Why not", pools_text, detail=True),
        ),
        details=frozenset({"finish_p50_at"}),
    )


def _job_rows(made: AccountPlan) -> Iterator[Row]:
    why = {each.job: each.why for each in made.unserved}
    for job in made.jobs:
        used = [each for each in made.plan.allocations if each.job == job.name]
        yield {
            "served": job.name not in why,
            "job": job.name,
            "tenant": job.tenant,
            "pools": list(dict.fromkeys(str(each.pool) for each in used)),
            "node_hours": sum(each.node_hours for each in used),
            "forecast": made.plan.forecast_of(job.name),
            "limits_usd": _paid_usd(made.plan.constraints, job),
            "deadline_at": job.deadline_at,
            "why_not": why.get(job.name),
        }


def _paid_usd(limits: Sequence[Constraint], job: Job) -> float | None:
    """What the job pays for all limits, None where no price is known."""
    paid = [use.paid_usd for each in limits for use in each.uses if use.job == job.name]
    known = [usd for usd in paid if usd is not None]
    return sum(known) if known else None


def _unserved_notes(unserved: UnservedJob) -> Iterator[str]:
    yield f"Not served: {unserved.job}: {pools_text(unserved.why)}."
    if unserved.remedies:
        yield f"  would serve it: {'; or '.join(unserved.remedies[:MAX_REMEDIES])}"


def _totals_note(totals: AccountTotals, made: AccountPlan) -> Iterator[str]:
    if not totals.served:
        return
    plan = made.plan
    near = f", within {percent_text(plan.gap)} of the bound" if plan.gap and plan.bound_usd else ""
    yield (
        f"The {totals.served} jobs served ({plan.status.value}{near}): {usd_text(totals.usd)}, "
        f"{number_text(totals.kwh)} kWh, {gco2e_text(totals.gco2e)} CO2e, last done "
        f"{minute_text(totals.finish_at)}. Dollars are the sum of what is expected of each."
    )


def _facts(made: AccountPlan, totals: AccountTotals, limits: Table) -> Row:
    plan = made.plan
    return {
        "policy": made.policy.name,
        **records([plan], "status binding made_at objective_usd bound_usd gap")[0],
        "totals": {**records([totals], TOTALS)[0], **interval_fields("on_time", totals.on_time)},
        "unserved": records(made.unserved, "job why remedies"),
        "limits": records(map(limits.fields, limits.rows), ACCOUNT_FACTS["limits"]),
        "uses": [
            {"limit": limit_name(each), "unit": each.unit, **use}
            for each in plan.constraints
            if each.most is not None
            for use in records(each.uses, "job amount paid_usd")
        ],
        "allocations": records(plan.allocations, ACCOUNT_FACTS["allocations"]),
    }


def account_what_if_table(jobs: int, scenarios: Sequence[AccountScenario]) -> Table:
    """Return a row of totals per scenario."""
    served = sum(each.totals is not None and each.totals.served == jobs for each in scenarios)
    return Table(
        schema="costopt.account-what-if/1",
        title=f"{len(scenarios)} scenarios for {jobs} jobs, {served} serve all",
        columns=(
            Column("policy", "Policy"),
            Column("deadline_s", "Deadline", seconds_text, right=True, unknown="own"),
            Column("capacity", "Capacity", rank=3),
            Column("served", "Served", right=True),
            Column("usd", "$ expected", usd_text, right=True),
            Column("kwh", "kWh", number_text, right=True),
            Column("gco2e", "CO2e", gco2e_text, right=True, rank=1),
            Column("finish_at", "Last done", minute_text, rank=2),
            Column("on_time", "P(on time)", probability_text, right=True, interval=True),
            Column("why_not", "Why not", pools_text, fold_at=40, unknown=""),
            Column("jobs", "Jobs", detail=True),
        ),
        rows=[
            {
                "policy": each.policy.name,
                "deadline_s": each.deadline_s,
                "capacity": each.terms,
                **records([each.totals or AccountTotals(jobs, 0)], TOTALS)[0],
                "why_not": each.why_not,
            }
            for each in scenarios
        ],
        notes=(
            "Sums over the jobs served: expected dollars, the last median finish, and the "
            "P(on time) of the job that is least sure.",
        ),
    )
