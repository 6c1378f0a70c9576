"""Every pool judged alone: what the whole job would come to on it, and why it was not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from costopt.domain.plan import Candidate, Forecast, Rejection
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.entering import EnteringPrice
from costopt.optimize.expected_prices import with_mean_prices
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import Segment
from costopt.optimize.prune import can_run_stage, single_held_h, single_score, usable_h
from costopt.optimize.request import PlanRequest
from costopt.optimize.risk import forecast_rows
from costopt.optimize.why_not import RejectionExplainer

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """The plan that candidates are compared with: empty ``segments`` where there is none.

    ``part`` is the job as it was solved, which may hold back less time than the policy's risk asks
    of a single configuration; ``forecast`` and ``score_usd`` are the plan's.
    """

    part: PlannedJob
    segments: Sequence[Segment]
    score_usd: float
    forecast: Forecast | None


def judge_candidates(
    request: PlanRequest, part: PlannedJob, made: ReferencePlan
) -> tuple[Candidate, ...]:
    """One candidate per pool, and per spread over zones where the policy asks for spreads.

    Each at its best gang size and at the prices of the hours that it would run; chosen ones as in
    the plan. Sorted by the objective, those that would be late or too risky last. The codes of the
    rejections are those of ``RejectionExplainer``.
    """
    demand = part.demand
    table = with_mean_prices(request, part.table, demand)
    chosen = {segment.row for segment in made.segments}
    spreads = request.policy.limits.max_zone_share is not None
    rows = _best_rows(table, demand, chosen, spreads=spreads)
    if not len(rows):
        return ()
    forecasts = forecast_rows(table, rows, demand, request.now)
    scores = single_score(table, demand)[rows]
    why_not = _why_not(request, table, part, made)
    built = [
        _candidate(
            table,
            int(row),
            made.forecast if made.forecast is not None and {int(row)} == chosen else forecast,
            None if row in chosen else why_not.rejection(int(row), forecast),
            request.now,
        )
        for row, forecast in zip(rows, forecasts, strict=True)
    ]
    order = sorted(
        range(len(built)),
        key=lambda i: (_misses(built[i]), scores[i], built[i].pool, built[i].nodes),
    )
    return tuple(built[i] for i in order)


def _why_not(
    request: PlanRequest, table: ConfigurationTable, part: PlannedJob, made: ReferencePlan
) -> RejectionExplainer:
    policy, demand = request.policy, part.demand
    if not made.segments:
        return RejectionExplainer.against(table, demand, policy, None)
    constant = table is part.table
    solved = made.part.table if constant else table
    entering = EnteringPrice.of(
        solved, made.part.demand, policy.objective, made.score_usd, mixes=constant
    )
    return RejectionExplainer.against(table, demand, policy, made.score_usd, entering)


def _best_rows(
    table: ConfigurationTable, demand: Demand, chosen: set[int], *, spreads: bool
) -> Rows:
    """For each pool or spread the cheapest gang size that ends in time alone, else the fastest."""
    in_every_stage = np.ones(len(table), dtype=bool)
    for number, stage in enumerate(demand.stages):
        in_every_stage &= can_run_stage(table, stage, number)
    in_first = can_run_stage(table, demand.stages[0], 0)
    fits = in_every_stage if in_every_stage.any() else in_first
    plain = np.flatnonzero(fits & ((table.offer >= 0) | spreads))
    place = np.where(table.offer >= 0, table.offer, len(table.offers) + table.first())
    held_h, score = single_held_h(table, demand)[plain], single_score(table, demand)[plain]
    late = held_h > usable_h(table, demand)[plain]
    order = plain[np.lexsort((np.where(late, held_h, score), late, place[plain]))]
    _, first_of = np.unique(place[order], return_index=True)
    replaced = {int(place[row]) for row in chosen}
    best = [row for row in order[first_of].tolist() if int(place[row]) not in replaced]
    return np.array(sorted([*best, *chosen]), dtype=np.int64)


def _candidate(
    table: ConfigurationTable,
    row: int,
    forecast: Forecast,
    rejection: Rejection | None,
    now: datetime,
) -> Candidate:
    parts = table.spread[row] or ((int(table.offer[row]), int(table.nodes[row])),)
    offers = [table.offers[number] for number, _ in parts]
    prices = [offer.price_usd_per_hour for offer in offers]
    known = [(p, nodes) for p, (_, nodes) in zip(prices, parts, strict=True) if p is not None]
    ages = [age for price, _ in known if (age := price.age_s(now)) is not None]
    nodes = int(table.nodes[row])
    return Candidate(
        pool=offers[0].pool,
        nodes=nodes,
        price_usd_per_hour=sum(price.value * count for price, count in known) / nodes,
        price_age_s=max(ages, default=None),
        units_per_s=float(table.speed[row] * table.pace[0, row]),
        forecast=forecast,
        chosen=rejection is None,
        rejection=rejection,
        spread=table.parts(row) if table.spread[row] else (),
    )


def _misses(candidate: Candidate) -> bool:
    return candidate.rejection is not None and candidate.rejection.code in ("late", "risk")
