"""Plans and what-ifs as tables; the columns of forecasts are defined once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from costopt.domain.account import Account
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.plan import (
    Candidate,
    Forecast,
    Plan,
    PlanStatus,
    Rejection,
)
from costopt.domain.policy import Policy
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    percent_text,
    pool_text,
    pools_text,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.market.screening import DEFAULT_MAX_AGE_S
from costopt.planning.forecast.replays import Replays
from costopt.render.table import Column, Row, Table, records
from costopt.views.budget import budget_rows, budget_warnings
from costopt.views.derived import derived_notes, derived_rows
from costopt.views.headline import forecast_headline
from costopt.views.limit import limits_table
from costopt.views.replays import replays_notes, replays_row
from costopt.views.storage import storage_note, storage_row

MAX_ALLOCATIONS = 12

LIKELY_PROBABILITY = 0.5
"""From this probability on the table says that figures are those with the fallback."""


ON_TIME_NOTE = (
    "P(on time): share of simulated runs; where all or none are in time, its 95 % bound, which "
    "more runs bring closer to 100 %."
)

REGION_NOTE = "*: in any zone of the region."

ROUGH_SHARE = 0.85
"""A speed of which less is sure is worth measuring."""
CALIBRATE_NOTE = (
    "The speed on what the plan takes is an estimate: costopt calibrate measures it on one node in "
    "a few minutes."
)

CAPACITY_NOTE = (
    "Spot capacity was not observed, and nothing uninterruptible may replace it: P(on time) is at "
    "least what it would be with the scarcest capacity that is on record."
)

FORECAST_COLUMNS = (
    Column("usd_mean", "$ expected", usd_text, right=True),
    Column("usd_p95", "$ P95", usd_text, right=True, rank=2),
    Column("kwh", "kWh", number_text, right=True, rank=2),
    Column("gco2e", "CO2e", gco2e_text, right=True, rank=5),
    Column("finish_p50_at", "Finish P50", minute_text, rank=6),
    Column("finish_p95_at", "Finish P95", minute_text, rank=8),
    Column("on_time", "P(on time)", probability_text, right=True, interval=True),
    Column("within_budget", "P(in budget)", probability_text, right=True, interval=True, rank=1),
    Column("usd_p50", "$ P50", usd_text, detail=True),
    Column("kwh_low", "kWh low", number_text, detail=True),
    Column("kwh_high", "kWh high", number_text, detail=True),
    Column("energy_basis", "Energy basis", detail=True),
    Column("expected_interruptions", "Interruptions", number_text, detail=True),
    Column("falls_back", "P(fallback)", probability_text, detail=True, interval=True),
)
"""The figures of a Forecast, by its field, in plans and what-ifs and their pages; a row of a table
with other columns holds its ``forecast``."""

PLAN_FACTS = {
    "allocations": "pool nodes start_at end_at power_cap_w",
    "constraints": "name unit slack shadow_price",
    "rejections": "pool code reason",
}
"""What programs get of a plan besides its candidates: the names of each row's values."""


EXCLUSIONS = {
    "resources": "on machines that the job rules out",
    "throughput_unknown": "of unknown speed",
    "policy": "ruled out by the policy",
    "price_unknown": "without a price",
    "price_stale": "with an old price",
    "price_old": "with an old price",
    "price_outdated": "with an outdated price",
}
"""What is common to the offers that are excluded under a code; of others the code says it."""


def columns_around_forecast(
    before: tuple[Column, ...],
    after: tuple[Column, ...],
    last: tuple[Column, ...] = (),
    details: frozenset[str] = frozenset(),
) -> tuple[Column, ...]:
    """Return the forecast's columns for people between others, its details after them.

    ``details``: the keys of columns that are details of this table alone.
    """
    columns = [
        replace(
            column, value=f"forecast.{column.key}", detail=column.detail or column.key in details
        )
        for column in FORECAST_COLUMNS
    ]
    return (
        *before,
        *(column for column in columns if not column.detail),
        *after,
        *(column for column in columns if column.detail),
        *last,
    )


BUDGET_COLUMNS = frozenset({"within_budget"})


def unused_columns(job: Job) -> frozenset[str]:
    """Return the forecast's columns that say nothing of this job."""
    budget = job.budget.max_usd_between(job.start_at, job.until_at)
    return BUDGET_COLUMNS if budget is None and job.budget.max_kwh is None else frozenset()


def _plan_columns(job: Job) -> tuple[Column, ...]:
    return columns_around_forecast(
        (
            Column("chosen", "", lambda chosen: "✔" if chosen else ""),
            Column("pool", "Pool", pool_text, value=_pools),
            Column("nodes", "Nodes", right=True, rank=1),
            Column("price_usd_per_hour", "$/node-h", usd_text, right=True, rank=4),
            Column("price_age_s", "Price age", seconds_text, right=True, rank=7),
        ),
        (
            Column("reason", "Why not", pools_text, fold_at=60,
                   value=lambda each: each.rejection.reason if each.rejection else ""),
            Column("units_per_s", "Units/s", detail=True, interval=True, value="speed"),
            Column("speed_basis", "Speed basis", detail=True, value="speed.basis"),
            Column("speed_source", "Speed source", detail=True, value="speed.source"),
        ),
        (
            Column("price_source", "Price source", detail=True,
                   value=lambda candidate: candidate.price_source or None),
            Column("code", "Code", detail=True, value="rejection.code"),
            Column("enters_below_usd_per_hour", "Enters below", usd_text, detail=True,
                   value="rejection.enters_below_usd_per_hour"),
        ),
        details=unused_columns(job),
    )  # fmt: skip


def _pools(candidate: Candidate) -> str:
    return " + ".join(str(pool) for pool, _ in candidate.spread) or str(candidate.pool)


def plan_table(
    made: Plan,
    job: Job,
    policy: Policy,
    top: int,
    explain: bool,
    *,
    account: Account,
    options: bool = True,
    verification: Replays | None = None,
) -> Table:
    """The candidates, with the plan itself in facts and notes, and the outcome of replays.

    ``options``: whether notes name the options of the command line that show more, and how long
    the solver took.
    """
    listed = _listed(made.candidates, top)
    return Table(
        schema="costopt.plan/1",
        title=f"Candidates for {job.name}, policy {policy.name}",
        columns=_plan_columns(job),
        rows=listed,
        facts={**_facts(made, job, policy, account), "verification": replays_row(verification)},
        notes=(
            *_notes(made, job, policy, account, listed, explain, options),
            *replays_notes(verification, job),
        ),
        details=tuple(_details(made, job, policy, options)),
        marks="chosen",
        more=(limits_table("Limits of the plan", "name left unit shadow_price", made.constraints),)
        if explain and made.constraints
        else (),
        lead=_answer(made, job),
    )


def _answer(made: Plan, job: Job) -> str:
    forecast = made.forecast_of(job.name)
    if forecast is None or made.status is PlanStatus.INFEASIBLE:
        return f"No plan ends the job in time: {made.binding or 'no reason is known'}."
    return forecast_headline(job, forecast, _on_demand_usd(made, job))


def _on_demand_usd(made: Plan, job: Job) -> float | None:
    """Return what the cheapest on-demand configuration that ends in time costs."""
    return min(
        (
            candidate.forecast.usd_mean
            for candidate in made.candidates
            if candidate.pool.capacity_type is CapacityType.ON_DEMAND
            and candidate.forecast.finish_p50_at <= job.until_at
        ),
        default=None,
    )


def capacity_note(forecasts: Iterable[Forecast]) -> Iterator[str]:
    """A sentence where a probability counts capacity that was not measured."""
    if any(forecast.on_time.basis is Basis.PRIOR for forecast in forecasts):
        yield CAPACITY_NOTE


def _listed(candidates: tuple[Candidate, ...], top: int) -> list[Candidate]:
    """What is chosen, then the best of the others."""
    chosen = [candidate for candidate in candidates if candidate.chosen]
    others = [candidate for candidate in candidates if not candidate.chosen]
    return chosen + (others[:top] if top else others)


def _forecast_fact(forecast: Forecast | None) -> Row | None:
    if forecast is None:
        return None
    return {name: v for column in FORECAST_COLUMNS for name, v in column.fields(forecast).items()}


def _facts(made: Plan, job: Job, policy: Policy, account: Account) -> Row:
    forecast, proposal = made.forecast_of(job.name), made.proposal_of(job.name)
    return {
        "job": job.name,
        "policy": policy.name,
        **records([made], "status binding made_at")[0],
        "deadline_at": job.deadline_at,
        **records([made], "objective_usd bound_usd gap solver solve_s")[0],
        "forecast": _forecast_fact(forecast),
        "proposal": _forecast_fact(proposal if made.proposals else None),
        "derived": derived_rows(job),
        "storage": storage_row(made, job, account),
        "budgets": [] if forecast is None else budget_rows(job, policy, made.made_at, forecast),
        **{fact: records(getattr(made, fact), names) for fact, names in PLAN_FACTS.items()},
    }


def _notes(
    made: Plan,
    job: Job,
    policy: Policy,
    account: Account,
    listed: Sequence[Candidate],
    explain: bool,
    options: bool,
) -> Iterator[str]:
    left_out = len(made.candidates) - len(listed)
    if any("*/" in _pools(each) for each in listed):
        yield REGION_NOTE
    if made.candidates:
        yield from capacity_note(candidate.forecast for candidate in made.candidates)
    if left_out:
        yield f"{left_out} more candidates{'; --top 0 lists all' if options else ''}."
    yield from _fallbacks(made.candidates)
    yield from _speeds(listed)
    if options and any(each.chosen and _is_rough(each.speed) for each in made.candidates):
        yield CALIBRATE_NOTE
    yield from derived_notes(job)
    if made.rejections:
        by_code = Counter(rejection.code for rejection in made.rejections).most_common()
        counts = ", ".join(f"{count} {EXCLUSIONS.get(code, code)}" for code, count in by_code)
        why = "; --explain says why" if options else ""
        yield f"{len(made.rejections)} offers excluded ({counts}){why}."
    forecast, proposal = made.forecast_of(job.name), made.proposal_of(job.name)
    if forecast is not None and proposal is not None and made.allocations:
        yield from _old_prices(made)
        yield _plan_line(made, proposal)
        yield from _allocations(made, options)
        yield from storage_note(made, job, account, proposal)
        yield from budget_warnings(job, policy, made.made_at, forecast)
    if explain:
        yield from _explanation(made)


def _details(made: Plan, job: Job, policy: Policy, options: bool) -> Iterator[str]:
    """How the figures came about."""
    if made.candidates:
        yield ON_TIME_NOTE
    forecast, proposal = made.forecast_of(job.name), made.proposal_of(job.name)
    if forecast is not None and (made.proposals or not made.allocations):
        # the policy need not follow the plan
        yield (
            f"Expected of policy {policy.name}, which decides again at every tick: "
            f"{_outcome(job, forecast)}; {forecast.on_time.source}."
        )
    if forecast is not None and proposal is not None and made.allocations:
        yield _summary(made, job, proposal, options)


def _fallbacks(candidates: tuple[Candidate, ...]) -> Iterator[str]:
    likely = sum(
        candidate.forecast.falls_back.value >= LIKELY_PROBABILITY for candidate in candidates
    )
    if likely:
        yield (
            f"{likely} candidates would probably miss the deadline alone; their figures include "
            "the fallback to on-demand capacity."
        )


def _speeds(listed: Sequence[Candidate]) -> Iterator[str]:
    """Where speeds come from that were not measured: each assumption with its GPU models."""
    parts: dict[str, list[str]] = {}
    modelled = (each.speed.source for each in listed if each.speed.basis is not Basis.MEASURED)
    for source in dict.fromkeys(modelled):
        assumed, _, on_gpu = source.partition("; ")
        parts.setdefault(assumed, []).append(on_gpu)
    for assumed in tuple(parts):
        # At its own scale an MFU says nothing of doublings: one line with that which does.
        fuller = next((each for each in parts if each.startswith(f"{assumed}, ")), None)
        if fuller is not None:
            parts[fuller] = list(dict.fromkeys((*parts[fuller], *parts.pop(assumed))))
    for assumed, on_gpus in parts.items():
        yield f"Speed (modelled): {'; '.join((assumed, *filter(None, on_gpus)))}."


def _is_rough(speed: Estimate) -> bool:
    return speed.low < ROUGH_SHARE * speed.value


def _summary(made: Plan, job: Job, forecast: Forecast, options: bool) -> str:
    gap = None if made.gap is None else f"within {percent_text(made.gap)} of the optimum"
    solver = f"{made.solver} {made.solve_s:.2f} s" if options else made.solver
    followed = ", if it were followed" if made.proposals else ""
    what = "Proposal" if made.proposals else "Plan"
    # INFEASIBLE is what will be run, not the proposal.
    status = None if made.status is PlanStatus.INFEASIBLE else made.status.value
    kind = f"{what} ({', '.join(filter(None, (status, gap, solver)))}){followed}"
    return f"{kind}: {_outcome(job, forecast)}."


def _plan_line(made: Plan, proposal: Forecast) -> str:
    if not made.proposals:
        return "The plan:"
    return (
        f"The plan, {usd_text(proposal.usd_mean)} if it were followed; "
        "the policy decides again at every tick:"
    )


def _old_prices(made: Plan) -> Iterator[str]:
    """How old the spot prices are on which the choice rests, where they may well have changed."""
    for each in made.candidates:
        spot, age_s = each.pool.capacity_type is CapacityType.SPOT, each.price_age_s
        if each.chosen and spot and age_s is not None and age_s > DEFAULT_MAX_AGE_S:
            yield f"The spot price of {pool_text(str(each.pool))} is {seconds_text(age_s)} old."


def _outcome(job: Job, forecast: Forecast) -> str:
    in_budget = ""
    if forecast.within_budget is not None:
        in_budget = f", P(in budget) {probability_text(forecast.within_budget)}"
    return (
        f"{usd_text(forecast.usd_mean)} (P95 {usd_text(forecast.usd_p95)}), "
        f"{_energy(forecast)}, done {minute_text(forecast.finish_p50_at)} "
        f"(P95 {minute_text(forecast.finish_p95_at)}), {_deadline(job, forecast)}"
        f"{in_budget}"
    )


def _deadline(job: Job, forecast: Forecast) -> str:
    if job.deadline_at is None:
        return "no deadline"
    due = f"deadline {minute_text(job.deadline_at)}"
    if forecast.on_time.high >= 1 and forecast.falls_back.low > 0:
        needed = probability_text(forecast.falls_back)
        return f"{due} kept; on-demand needed with P {'' if needed[0] in '<>' else '= '}{needed}"
    return f"{due}, P(on time) {probability_text(forecast.on_time)}"


def _energy(forecast: Forecast) -> str:
    if forecast.kwh is None or forecast.energy_basis is None:
        return "energy and CO2e unknown, as the power of a node is"
    return (
        f"{number_text(forecast.kwh)} kWh ({forecast.energy_basis.value}, "
        f"{number_text(forecast.kwh_low)} to {number_text(forecast.kwh_high)}), "
        f"{gco2e_text(forecast.gco2e)} CO2e"
    )


def _allocations(made: Plan, options: bool) -> Iterator[str]:
    for each in made.allocations[:MAX_ALLOCATIONS]:
        span = f"{minute_text(each.start_at)} to {minute_text(each.end_at)}"
        yield f"  {span}: {each.nodes} × {pool_text(str(each.pool))}"
    left_out = len(made.allocations) - MAX_ALLOCATIONS
    if left_out > 0:
        yield f"  and {left_out} more{', all in --output json' if options else ''}"


def _explanation(made: Plan) -> Iterator[str]:
    """Excluded offers by reason with an example each."""
    by_reason: dict[tuple[str, str], list[Rejection]] = {}
    for rejection in made.rejections:
        by_reason.setdefault((rejection.code, rejection.reason), []).append(rejection)
    if by_reason:
        yield "Excluded offers:"
    for (code, reason), alike in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        yield f"  {len(alike)} × {code}: {reason} (such as {pool_text(str(alike[0].pool))})"
