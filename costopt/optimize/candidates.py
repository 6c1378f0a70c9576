"""Every pool judged alone: what the whole job would come to on it, and why it was not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from costopt.domain.plan import Candidate, Forecast, Rejection
from costopt.domain.policy import Policy
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.layout import Segment
from costopt.optimize.prune import alone_held_h, alone_score
from costopt.optimize.risk import forecast_rows

Rows = NDArray[np.int64]


def candidates_of(
    table: ConfigurationTable,
    demand: Demand,
    segments: Sequence[Segment],
    plan_score_usd: float,
    policy: Policy,
    now: datetime,
) -> tuple[Candidate, ...]:
    """One candidate per pool at its best gang size, chosen ones as in the plan.

    Sorted by the objective, those that would be late or too risky last. Reasons compare with the
    plan's objective, ``plan_score_usd``; without a plan (no segments) a candidate that could do the
    job has code ``unplanned``. Codes: ``late``, ``risk``, ``budget``, ``dearer``, ``unplanned``.
    """
    chosen = {segment.row for segment in segments if not table.spread[segment.row]}
    rows = _best_rows(table, demand, chosen)
    if not len(rows):
        return ()
    forecasts = forecast_rows(table, rows, demand, now)
    scores = alone_score(table, demand)[rows]
    built = [
        _candidate(
            table,
            int(row),
            forecast,
            None
            if row in chosen
            else _rejection(
                table,
                int(row),
                demand,
                forecast,
                score,
                plan_score_usd,
                policy,
                planned=bool(segments),
            ),
            now,
        )
        for row, forecast, score in zip(rows, forecasts, scores.tolist(), strict=True)
    ]
    order = sorted(
        range(len(built)),
        key=lambda i: (_misses(built[i]), scores[i], built[i].pool, built[i].nodes),
    )
    return tuple(built[i] for i in order)


def _best_rows(table: ConfigurationTable, demand: Demand, chosen: set[int]) -> Rows:
    """For each pool the cheapest gang size that ends in time alone, else the fastest."""
    in_every_stage = np.ones(len(table), dtype=bool)
    for stage in demand.stages:
        in_every_stage &= (table.nodes >= stage.min_nodes) & (table.nodes <= stage.max_nodes)
    first = demand.stages[0]
    in_first = (table.nodes >= first.min_nodes) & (table.nodes <= first.max_nodes)
    fits = in_every_stage if in_every_stage.any() else in_first
    plain = np.flatnonzero(fits & (table.offer >= 0))
    held_h, score = alone_held_h(table, demand)[plain], alone_score(table, demand)[plain]
    late = held_h > demand.hours_left
    order = plain[np.lexsort((np.where(late, held_h, score), late, table.offer[plain]))]
    _, first_of = np.unique(table.offer[order], return_index=True)
    replaced = {int(table.offer[row]) for row in chosen}
    best = [row for row in order[first_of].tolist() if int(table.offer[row]) not in replaced]
    return np.array(sorted([*best, *chosen]), dtype=np.int64)


def _candidate(
    table: ConfigurationTable,
    row: int,
    forecast: Forecast,
    rejection: Rejection | None,
    now: datetime,
) -> Candidate:
    offer = table.offers[int(table.offer[row])]
    price = offer.price_usd_per_hour
    assert price is not None
    return Candidate(
        pool=offer.pool,
        nodes=int(table.nodes[row]),
        price_usd_per_hour=price.value,
        price_age_s=price.age_s(now),
        units_per_s=float(table.speed[row]),
        forecast=forecast,
        chosen=rejection is None,
        rejection=rejection,
    )


def _rejection(
    table: ConfigurationTable,
    row: int,
    demand: Demand,
    forecast: Forecast,
    score: float,
    plan_score_usd: float,
    policy: Policy,
    *,
    planned: bool,
) -> Rejection:
    pool = table.offers[int(table.offer[row])].pool
    late_h = (forecast.finish_p50_at - demand.job.deadline_at).total_seconds() / 3600
    budget = demand.job.budget
    if late_h > 0:
        return Rejection(pool, "late", f"finishes {late_h:,.1f} h late")
    if forecast.on_time < policy.risk.on_time:
        reason = f"P(on time) {forecast.on_time:.2f} < {policy.risk.on_time:g}"
        return Rejection(pool, "risk", reason)
    if alone_held_h(table, demand)[row] > demand.hours_left:
        return Rejection(pool, "risk", _too_slow(table, row, demand))
    if budget.max_usd is not None and forecast.usd_p50 > budget.max_usd:
        reason = f"costs {forecast.usd_p50:,.2f} $, the budget is {budget.max_usd:,.2f} $"
        return Rejection(pool, "budget", reason)
    if budget.max_kwh is not None and forecast.kwh > budget.max_kwh:
        reason = f"takes {forecast.kwh:,.1f} kWh, the budget is {budget.max_kwh:,.1f} kWh"
        return Rejection(pool, "budget", reason)
    if not planned:
        return Rejection(pool, "unplanned", "no plan was made")
    return _dearer(table, row, score, demand, plan_score_usd, policy)


def _too_slow(table: ConfigurationTable, row: int, demand: Demand) -> str:
    expected_h = demand.units / float(table.paid_units_per_hour[row]) * float(table.calendar[row])
    if expected_h > demand.hours_left and table.interruptible[row]:
        return "too slow: on time only by changing to uninterrupted capacity"
    return "leaves no time for the reserve and the interruptions planned for"


def _dearer(
    table: ConfigurationTable,
    row: int,
    score: float,
    demand: Demand,
    plan_score_usd: float,
    policy: Policy,
) -> Rejection:
    pool = table.offers[int(table.offer[row])].pool
    objective = policy.objective
    only_usd = objective.usd_per_kwh == 0 and objective.usd_per_tonne_co2e == 0
    ratio = score / plan_score_usd if plan_score_usd > 0 else float("inf")
    verb = "costs" if only_usd else "scores"
    reason = (
        f"{verb} {ratio:.1f}× the chosen"
        if ratio >= 1.1
        else (f"{verb} {max(0.0, ratio - 1):.1%} more than the chosen")
    )
    return Rejection(
        pool, "dearer", reason, _enters_below(table, row, score, demand, plan_score_usd, policy)
    )


def _enters_below(
    table: ConfigurationTable,
    row: int,
    score: float,
    demand: Demand,
    plan_score_usd: float,
    policy: Policy,
) -> float | None:
    """The node price at which the candidate alone would equal the plan, all else being equal."""
    node_price = float(table.usd_per_hour[row]) / int(table.nodes[row])
    hours = demand.units / float(table.paid_units_per_hour[row])
    usd = float(table.usd_per_hour[row]) * hours + float(table.usd_per_start[row])
    usd_part = policy.objective.usd * usd
    if usd_part <= 0:
        return None
    price = node_price * (1 - (score - plan_score_usd) / usd_part)
    return price if price > 0 else None


def _misses(candidate: Candidate) -> bool:
    return candidate.rejection is not None and candidate.rejection.code in ("late", "risk")
