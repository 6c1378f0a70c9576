"""The same job under another objective: what its table's scores and its request's policy become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.job_part import PlannedJob
from costopt.optimize.layout import Segment
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest


def restrict_offers(request: PlanRequest, parts: Sequence[PlannedJob]) -> PlanRequest:
    """The request with the offers of its jobs' tables alone: repeated solves look at no others."""
    pools = {offer.pool for part in parts for offer in part.table.offers}
    return replace(request, offers=tuple(o for o in request.offers if o.pool in pools))


def with_objective(request: PlanRequest, objective: Objective) -> PlanRequest:
    """The request under another objective."""
    return replace(request, policy=replace(request.policy, objective=objective))


def part_with_objective(part: PlannedJob, objective: Objective) -> PlannedJob:
    """The part scored by another objective, at present prices.

    Where it weighs carbon, rows whose carbon is unknown cannot be used.
    """
    table = part.table
    scored = replace(
        table,
        score_per_hour=_score(table, objective, table.usd_per_hour, table.kwh_per_hour),
        start_score=_score(table, objective, table.usd_per_start, table.kwh_per_start),
    )
    if objective.usd_per_tonne_co2e > 0:
        known = np.isfinite(table.gco2e_per_kwh)
        scored = replace(scored, until_h=np.where(known, table.until_h, -np.inf))
    return replace(part, table=scored)


def _score(table: ConfigurationTable, objective: Objective, usd: Array, kwh: Array) -> Array:
    score: Array = objective.usd * usd + objective.usd_per_kwh * kwh
    if objective.usd_per_tonne_co2e > 0:
        grams = kwh * np.nan_to_num(table.gco2e_per_kwh)
        score = score + objective.usd_per_tonne_co2e * grams / 1e6
    return score


def objective_usd(segments: Sequence[Segment], objective: Objective) -> float:
    """What segments come to under an objective; NaN where it weighs carbon that is unknown."""
    usd, kwh = sum(s.usd for s in segments), sum(s.kwh for s in segments)
    weighs = objective.usd_per_tonne_co2e > 0
    grams = sum(s.kwh * s.gco2e_per_kwh for s in segments) if weighs else 0.0
    return objective.score_usd(usd, kwh, grams)


def restrict_rows(table: ConfigurationTable, rows: NDArray[np.int64]) -> ConfigurationTable:
    """The table of these rows, in this order, with the offers that they use alone."""
    taken = table.take(rows)
    plain = taken.offer >= 0
    used = np.unique(np.concatenate((taken.offer[plain], taken.spread.offer)))
    offer = np.where(plain, np.searchsorted(used, taken.offer), -1)
    spread = replace(taken.spread, offer=np.searchsorted(used, taken.spread.offer))
    offers = tuple(table.offers[number] for number in used.tolist())
    return replace(taken, offers=offers, offer=offer, spread=spread)
