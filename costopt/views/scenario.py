"""The table of a what-if: a row per scenario, and the frontier of the first policy."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.plan import Forecast
from costopt.domain.policy import Policy
from costopt.formatting import (
    gco2e_text,
    minute_text,
    number_text,
    pool_lines,
    pools_text,
    seconds_text,
    signed_percent_text,
    whole_percent_text,
)
from costopt.planning.what_if import Scenario, non_dominated_scenarios
from costopt.render.table import Column, Row, Table
from costopt.views.frontier import FrontierRow
from costopt.views.headline import forecast_headline
from costopt.views.plan import (
    ON_TIME_NOTE,
    capacity_note,
    columns_around_forecast,
    unused_columns,
)

STAR_NOTE = "★: no other scenario is better in dollars or kWh without being worse in the other."
PER_PERCENT_NOTE = "Change of $: of the mean; /$ %: saved for each per cent of it."


STARS = frozenset({"unbeaten"})


def what_if_table(
    job: Job, policy: Policy, scenarios: Sequence[Scenario], frontier: Sequence[FrontierRow]
) -> Table:
    """Return a row per scenario, with the frontier in facts and notes."""
    from costopt.views.frontier import frontier_table

    tolerances = any(scenario.tolerance is not None for scenario in scenarios)
    undominated = set(non_dominated_scenarios(scenarios))
    feasible = sum(scenario.forecast is not None for scenario in scenarios)
    plans = frontier_table(
        frontier,
        f"Frontier under policy {policy.name}: no plan is beaten in dollars, kWh and finish",
    )
    return Table(
        schema="costopt.what-if/1",
        title=f"{len(scenarios)} scenarios for {job.name}, {feasible} feasible",
        columns=_what_if_columns(
            varied_terms=len({scenario.terms for scenario in scenarios}) > 1,
            tolerances=tolerances,
            deadlines=not tolerances or len({each.job.deadline_at for each in scenarios}) > 1,
            unused=unused_columns(job) | (STARS if len(undominated) == feasible else frozenset()),
        ),
        rows=[
            _scenario_row(scenario, index in undominated, _first_like(scenario, scenarios))
            for index, scenario in enumerate(scenarios)
        ],
        facts={"job": job.name, "frontier": [plans.fields(row) for row in plans.rows]},
        notes=(
            *((STAR_NOTE,) if len(undominated) < feasible else ()),
            *((PER_PERCENT_NOTE,) if tolerances else ()),
            *capacity_note(each.forecast for each in scenarios if each.forecast is not None),
        ),
        details=(ON_TIME_NOTE,),
        more=(plans,) if plans.rows else (),
        lead=_answer(scenarios),
    )


def _answer(scenarios: Sequence[Scenario]) -> str:
    """Return how many scenarios end in time, and the headline of the one that costs least."""
    feasible = [(each, forecast) for each in scenarios if (forecast := each.forecast) is not None]
    if not feasible:
        return "No scenario ends in time."
    cheapest, expected = min(feasible, key=lambda pair: pair[1].usd_mean)
    on_demand = [f.usd_mean for each, f in feasible if _is_on_demand(each)]
    span_s = _span_s(cheapest.job)
    within = "" if span_s is None else f" within {seconds_text(span_s)}"
    headline = forecast_headline(cheapest.job, expected, min(on_demand, default=None))
    return (
        f"{len(feasible)} of {len(scenarios)} scenarios end in time. "
        f"Policy {cheapest.policy.name}{within} costs least. {headline}"
    )


def _span_s(job: Job) -> float | None:
    return None if job.deadline_at is None else (job.deadline_at - job.start_at).total_seconds()


def _is_on_demand(scenario: Scenario) -> bool:
    used = scenario.plan.allocations if scenario.plan else ()
    return bool(used) and all(each.pool.capacity_type is CapacityType.ON_DEMAND for each in used)


def _first_like(scenario: Scenario, scenarios: Sequence[Scenario]) -> Forecast | None:
    """The forecast of the first scenario that differs from this one by its tolerance alone."""
    return next(
        each.forecast
        for each in scenarios
        if (each.policy.name, each.job, each.terms)
        == (scenario.policy.name, scenario.job, scenario.terms)
    )


MIN_CHANGE = 1e-3
"""A smaller change of dollars is within the simulation's noise."""


def _saved(
    forecast: Forecast | None, first: Forecast | None, figure: str, usd_change: float | None
) -> float | None:
    """What each per cent of dollars saves; None where it takes none, or a figure is unknown."""
    now, before = getattr(forecast, figure, None), getattr(first, figure, None)
    if now is None or before is None or usd_change is None or usd_change < MIN_CHANGE:
        return None
    return float((before - now) / (100 * usd_change))


def _change(forecast: Forecast | None, first: Forecast | None, figure: str) -> float | None:
    now, before = getattr(forecast, figure, None), getattr(first, figure, None)
    return now / before - 1.0 if now is not None and before else None


def _scenario_row(scenario: Scenario, undominated: bool, first: Forecast | None) -> Row:
    plan, job, forecast = scenario.plan, scenario.job, scenario.forecast
    used = plan.allocations if plan and forecast else ()
    changes = {figure: _change(forecast, first, figure) for figure in ("usd_mean", "kwh", "gco2e")}
    return {
        "scenario": scenario,
        "forecast": forecast,
        "unbeaten": undominated,
        "deadline_s": _span_s(job),
        "pools": list(dict.fromkeys(str(each.pool) for each in used)),
        "node_hours": sum(each.node_hours for each in used) if used else None,
        "change": changes,
        "saved": {
            figure: _saved(forecast, first, figure, changes["usd_mean"])
            for figure in ("kwh", "gco2e")
        },
        "why_not": None if forecast else scenario.why_not,
    }


def _what_if_columns(
    *, varied_terms: bool, tolerances: bool, deadlines: bool, unused: frozenset[str]
) -> tuple[Column, ...]:
    changes = (
        Column(
            "tolerance", "Tolerance", whole_percent_text, right=True, value="scenario.tolerance"
        ),
        *(
            Column(
                f"{key}_change",
                f"{title} change",
                signed_percent_text,
                right=True,
                value=f"change.{figure}",
            )
            for key, title, figure in (
                ("usd", "$", "usd_mean"),
                ("kwh", "kWh", "kwh"),
                ("gco2e", "CO2e", "gco2e"),
            )
        ),
        Column(
            "kwh_saved_per_usd_percent",
            "kWh/$ %",
            number_text,
            right=True,
            rank=1,
            value="saved.kwh",
        ),
        Column(
            "gco2e_saved_per_usd_percent",
            "CO2e/$ %",
            gco2e_text,
            right=True,
            rank=1,
            value="saved.gco2e",
        ),
    )
    return columns_around_forecast(
        (
            Column("unbeaten", "", lambda is_so: "★" if is_so else "", detail=bool(unused & STARS)),
            Column("policy", "Policy", value="scenario.policy.name"),
            Column("deadline_s", "Deadline", seconds_text, right=True, rank=0 if deadlines else 2),
            Column("capacity", "Capacity", rank=0 if varied_terms else 7, value="scenario.terms"),
            *(changes if tolerances else ()),
        ),
        (
            Column("node_hours", "Node-hours", number_text, right=True, rank=6),
            Column("pools", "Pools", pool_lines, rank=5),
            Column("why_not", "Why not", pools_text, fold_at=60, unknown=""),
            Column("status", "Status", detail=True, value="scenario.plan.status"),
            Column("deadline_at", "Deadline at", minute_text, detail=True,
                   value="scenario.job.deadline_at"),
        ),
        details=unused | {"finish_p95_at"},
    )  # fmt: skip
