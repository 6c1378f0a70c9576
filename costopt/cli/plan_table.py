"""A plan as a table: every candidate, what is chosen, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from costopt.cli.plan_budgets import budget_rows, budget_warnings
from costopt.domain.job import Job
from costopt.domain.plan import Candidate, Constraint, Forecast, Plan, Rejection
from costopt.domain.policy import Policy
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    percent_text,
    pool_text,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.render.table import Column, Row, Table, interval_fields

MAX_ALLOCATIONS = 12

LIKELY_PROBABILITY = 0.5
"""From this probability on the table says that figures are those with the fallback."""

NEGLIGIBLE = 1e-6
"""Slack below this is the solver's tolerance."""


def plan_table(made: Plan, job: Job, policy: Policy, top: int, explain: bool) -> Table:
    """The candidates, with the plan itself in facts and notes."""
    listed = _listed(made.candidates, top)
    left_out = len(made.candidates) - len(listed)
    return Table(
        schema="costopt.plan/1",
        title=f"Candidates for {job.name}, policy {policy.name}",
        columns=_COLUMNS,
        rows=[_row(candidate) for candidate in listed],
        facts=_facts(made, job, policy),
        notes=tuple(_notes(made, job, policy, left_out, explain)),
        marks="chosen",
    )


def _listed(candidates: tuple[Candidate, ...], top: int) -> list[Candidate]:
    """What is chosen, then the best of the others."""
    chosen = [candidate for candidate in candidates if candidate.chosen]
    others = [candidate for candidate in candidates if not candidate.chosen]
    return chosen + (others[:top] if top else others)


def _row(candidate: Candidate) -> Row:
    forecast, rejection = candidate.forecast, candidate.rejection
    return {
        "chosen": candidate.chosen,
        "pool": " + ".join(str(pool) for pool, _ in candidate.spread) or str(candidate.pool),
        "nodes": candidate.nodes,
        "price_usd_per_hour": candidate.price_usd_per_hour,
        "price_age_s": candidate.price_age_s,
        "units_per_s": candidate.units_per_s,
        **forecast_row(forecast),
        "code": rejection.code if rejection else None,
        "reason": rejection.reason if rejection else "",
        "enters_below_usd_per_hour": rejection.enters_below_usd_per_hour if rejection else None,
    }


def forecast_row(forecast: Forecast) -> Row:
    return {
        "usd_p50": forecast.usd_p50,
        "usd_p95": forecast.usd_p95,
        "kwh": forecast.kwh,
        "kwh_low": forecast.kwh_low,
        "kwh_high": forecast.kwh_high,
        "energy_basis": forecast.energy_basis,
        "gco2e": forecast.gco2e,
        "finish_p50_at": forecast.finish_p50_at,
        "finish_p95_at": forecast.finish_p95_at,
        "on_time": forecast.on_time,
        "expected_interruptions": forecast.expected_interruptions,
        "falls_back": forecast.falls_back,
    }


def _forecast_fact(forecast: Forecast) -> Row:
    row = forecast_row(forecast)
    ends = (interval_fields(key, row[key]) for key in ("on_time", "falls_back"))
    return {**row, **{name: value for each in ends for name, value in each.items()}}


def _facts(made: Plan, job: Job, policy: Policy) -> Row:
    forecast = made.forecast_of(job.name)
    return {
        "job": job.name,
        "policy": policy.name,
        "status": made.status,
        "binding": made.binding,
        "made_at": made.made_at,
        "deadline_at": job.deadline_at,
        "objective_usd": made.objective_usd,
        "bound_usd": made.bound_usd,
        "gap": made.gap,
        "solver": made.solver,
        "solve_s": made.solve_s,
        "forecast": None if forecast is None else _forecast_fact(forecast),
        "budgets": [] if forecast is None else budget_rows(job, policy, made.made_at, forecast),
        "allocations": [
            {
                "pool": str(each.pool),
                "nodes": each.nodes,
                "start_at": each.start_at,
                "end_at": each.end_at,
                "power_cap_w": each.power_cap_w,
            }
            for each in made.allocations
        ],
        "constraints": [
            {
                "name": each.name,
                "unit": each.unit,
                "slack": each.slack,
                "shadow_price": each.shadow_price,
            }
            for each in made.constraints
        ],
        "rejections": [
            {"pool": str(each.pool), "code": each.code, "reason": each.reason}
            for each in made.rejections
        ],
    }


def _notes(made: Plan, job: Job, policy: Policy, left_out: int, explain: bool) -> Iterator[str]:
    if left_out:
        yield f"{left_out} more candidates; --top 0 lists all."
    yield from _fallbacks(made.candidates)
    if made.rejections:
        yield _excluded(made.rejections)
    forecast = made.forecast_of(job.name)
    if forecast is not None and made.allocations:
        yield _summary(made, job, forecast)
        yield from _allocations(made)
        yield from budget_warnings(job, policy, made.made_at, forecast)
    if explain:
        yield from _explanation(made)


def _fallbacks(candidates: tuple[Candidate, ...]) -> Iterator[str]:
    likely = sum(
        candidate.forecast.falls_back.value >= LIKELY_PROBABILITY for candidate in candidates
    )
    if likely:
        yield (
            f"{likely} candidates would be late by themselves more often than not: their figures "
            "include the change to uninterrupted capacity that is then made."
        )


def _excluded(rejections: tuple[Rejection, ...]) -> str:
    counts = Counter(rejection.code for rejection in rejections)
    told = ", ".join(f"{count} {code}" for code, count in counts.most_common())
    return f"{len(rejections)} offers excluded ({told}); --explain says why."


def _summary(made: Plan, job: Job, forecast: Forecast) -> str:
    gap = "" if made.gap is None else f", within {percent_text(made.gap)} of the optimum"
    return (
        f"Plan ({made.status.value}{gap}, {made.solver} {made.solve_s:.2f} s): "
        f"{usd_text(forecast.usd_p50)} (P95 {usd_text(forecast.usd_p95)}), "
        f"{_energy(forecast)}, done {minute_text(forecast.finish_p50_at)} "
        f"(P95 {minute_text(forecast.finish_p95_at)}), deadline {minute_text(job.deadline_at)}, "
        f"P(on time) {probability_text(forecast.on_time)}."
    )


def _energy(forecast: Forecast) -> str:
    if forecast.kwh is None or forecast.energy_basis is None:
        return "energy and CO2e unknown, as the power of a node is"
    return (
        f"{number_text(forecast.kwh)} kWh ({forecast.energy_basis.value}, "
        f"{number_text(forecast.kwh_low)} to {number_text(forecast.kwh_high)}), "
        f"{gco2e_text(forecast.gco2e)} CO2e"
    )


def _allocations(made: Plan) -> Iterator[str]:
    for each in made.allocations[:MAX_ALLOCATIONS]:
        span = f"{minute_text(each.start_at)} to {minute_text(each.end_at)}"
        yield f"  {span}: {each.nodes} × {pool_text(str(each.pool))}"
    left_out = len(made.allocations) - MAX_ALLOCATIONS
    if left_out > 0:
        yield f"  and {left_out} more, all in --output json"


def _explanation(made: Plan) -> Iterator[str]:
    """Excluded offers by reason with an example each, then the limits."""
    by_reason: dict[tuple[str, str], list[Rejection]] = {}
    for rejection in made.rejections:
        by_reason.setdefault((rejection.code, rejection.reason), []).append(rejection)
    if by_reason:
        yield "Excluded offers:"
    for (code, reason), alike in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        yield f"  {len(alike)} × {code}: {reason} (such as {alike[0].pool})"
    yield from _constraints(made)


def _constraints(made: Plan) -> Iterator[str]:
    """The tightest first: what is left of each limit, and what a little more of it would save."""
    if not made.constraints:
        return
    yield "Limits, what is left of each, and what one more unit of it would save at most:"
    cells = [
        (_unitless(each), f"{_slack(each)} {each.unit}".rstrip(), _saving(each))
        for each in sorted(made.constraints, key=lambda each: (_slack(each) != "0", each.name))
    ]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    for name, left, saving in cells:
        yield f"  {name.ljust(widths[0])}  {left.rjust(widths[1])}  {saving}"


def _unitless(each: Constraint) -> str:
    return each.name.removesuffix(f" ({each.unit})")


def _slack(each: Constraint) -> str:
    return number_text(0.0 if abs(each.slack) < NEGLIGIBLE else each.slack)


def _saving(each: Constraint) -> str:
    if each.shadow_price is None:
        return "unknown"
    return "nothing" if each.shadow_price <= 0 else usd_text(each.shadow_price)


def _tick(chosen: bool) -> str:
    return "✔" if chosen else ""


_COLUMNS = (
    Column("chosen", "", _tick),
    Column("pool", "Pool", pool_text),
    Column("nodes", "Nodes", right=True),
    Column("price_usd_per_hour", "$/node-h", usd_text, right=True, rank=3),
    Column("price_age_s", "Price age", seconds_text, right=True, rank=5),
    Column("usd_p50", "$ P50", usd_text, right=True),
    Column("usd_p95", "$ P95", usd_text, right=True, rank=4),
    Column("kwh", "kWh", number_text, right=True),
    Column("gco2e", "CO2e", gco2e_text, right=True, rank=2),
    Column("finish_p50_at", "Finish P50", minute_text, rank=1),
    Column("finish_p95_at", "Finish P95", minute_text, rank=6),
    Column("on_time", "P(on time)", probability_text, right=True, interval=True),
    Column("reason", "Why not", fold_at=60),
    Column("units_per_s", "Units/s", number_text, detail=True),
    Column("kwh_low", "kWh low", number_text, detail=True),
    Column("kwh_high", "kWh high", number_text, detail=True),
    Column("energy_basis", "Energy basis", detail=True),
    Column("expected_interruptions", "Interruptions", number_text, detail=True),
    Column("falls_back", "P(fallback)", probability_text, detail=True, interval=True),
    Column("code", "Code", detail=True),
    Column("enters_below_usd_per_hour", "Enters below", usd_text, detail=True),
)
