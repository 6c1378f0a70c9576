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
from costopt.optimize.prune import alone_held_h, alone_score, fits_stage, usable_h
from costopt.optimize.risk import forecast_rows
from costopt.optimize.why_not import WhyNot

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
    plan's objective, ``plan_score_usd``; without a plan there are no segments. The codes of the
    rejections are those of ``WhyNot``.
    """
    chosen = {segment.row for segment in segments if not table.spread[segment.row]}
    rows = _best_rows(table, demand, chosen)
    if not len(rows):
        return ()
    forecasts = forecast_rows(table, rows, demand, now)
    scores = alone_score(table, demand)[rows]
    why_not = WhyNot.against(table, demand, policy, plan_score_usd if segments else None)
    built = [
        _candidate(
            table,
            int(row),
            forecast,
            None if row in chosen else why_not.rejection(int(row), forecast),
            now,
        )
        for row, forecast in zip(rows, forecasts, strict=True)
    ]
    order = sorted(
        range(len(built)),
        key=lambda i: (_misses(built[i]), scores[i], built[i].pool, built[i].nodes),
    )
    return tuple(built[i] for i in order)


def _best_rows(table: ConfigurationTable, demand: Demand, chosen: set[int]) -> Rows:
    """For each pool the cheapest gang size that ends in time alone, else the fastest."""
    in_every_stage = np.ones(len(table), dtype=bool)
    for number, stage in enumerate(demand.stages):
        in_every_stage &= fits_stage(table, stage, number)
    in_first = fits_stage(table, demand.stages[0], 0)
    fits = in_every_stage if in_every_stage.any() else in_first
    plain = np.flatnonzero(fits & (table.offer >= 0))
    held_h, score = alone_held_h(table, demand)[plain], alone_score(table, demand)[plain]
    late = held_h > usable_h(table, demand)[plain]
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
        units_per_s=float(table.speed[row] * table.pace[0, row]),
        forecast=forecast,
        chosen=rejection is None,
        rejection=rejection,
    )


def _misses(candidate: Candidate) -> bool:
    return candidate.rejection is not None and candidate.rejection.code in ("late", "risk")
