"""Points of a Pareto frontier, and a job's table and request under another objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from costopt.domain.plan import Allocation, Forecast
from costopt.domain.policy import Objective
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment

MERGE_TOLERANCE = 1e-4
"""Figures that differ by less than this share are taken as equal."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A non-dominated plan in dollars, kWh and median finish time.

    ``usd`` and ``kwh`` are means, the fallback to uninterruptible capacity included; ``kwh`` is
    None where the power of a node is unknown.
    """

    usd: float
    kwh: float | None
    forecast: Forecast
    allocations: tuple[Allocation, ...]


def non_dominated(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Return the points that no other equals or betters in all three figures, by ascending dollars.

    A plan of unknown energy is compared only with others of unknown energy, in the other two.
    """
    if not points:
        return []
    order = sorted(points, key=_order)
    kept = non_dominated_mask(_figures(order))
    return [point for point, keep in zip(order, kept, strict=True) if keep]


def non_dominated_mask(figures: Array) -> list[bool]:
    """Return which rows of ``figures`` no other row equals or betters in every figure.

    ``figures`` has shape (points, figures), less is better, and the result has shape (points,). Of
    equal rows the first one stays. A row with a NaN is compared only with rows that have it in the
    same place, by their other figures.
    """
    unknown = np.isnan(figures)
    scale = np.maximum(np.abs(np.nan_to_num(figures)).max(axis=0), 1e-12)
    slip = MERGE_TOLERANCE * np.maximum(np.abs(figures), 1e-3 * scale)
    kept = np.ones(len(figures), dtype=bool)
    for i in range(len(figures)):
        as_good = kept & ((figures <= figures[i] + slip[i]) | (unknown & unknown[i])).all(axis=1)
        as_good[i] = False
        better = (figures < figures[i] - slip[i]).any(axis=1)
        before = np.arange(len(figures)) < i
        kept[i] = not (as_good & (better | before)).any()
    return [bool(keep) for keep in kept]


MIN_BEND = 0.05
"""How far below the straight line from the cheapest to the most frugal plan the knee lies at least,
as a share of the two axes."""


def knee(plans: Sequence[tuple[float, float | None]]) -> int | None:
    """Return the number of the plan where kWh bend the most over dollars; None where none do.

    ``plans`` are (dollars, kWh). Beyond the knee a dollar saves less energy than before it: of the
    plans that no other betters in both figures it is, on axes from 0 to 1, the farthest below the
    line between the two ends (Kneedle: Satopää, Albrecht, Irwin and Raghavan 2011,
    doi:10.1109/ICDCSW.2011.20).
    """
    known = [(usd, kwh, i) for i, (usd, kwh) in enumerate(plans) if kwh is not None]
    curve: list[tuple[float, float, int]] = []
    for plan in sorted(known):
        if not curve or plan[1] < curve[-1][1]:
            curve.append(plan)
    if len(curve) < 3:
        return None
    (usd, kwh, _), (end_usd, end_kwh, _) = curve[0], curve[-1]
    bends = [
        ((kwh - own_kwh) / (kwh - end_kwh) - (own_usd - usd) / (end_usd - usd), -i)
        for own_usd, own_kwh, i in curve
    ]
    bend, number = max(bends)
    return -number if bend >= MIN_BEND else None


def surely_unbeaten(forecasts: Sequence[Forecast]) -> list[bool]:
    """Return which forecasts no other betters in median dollars or kWh without being worse in both.

    Differences within the noise of the simulations count as equal, so that forecasts that are alike
    are unbeaten together. A forecast of unknown energy is compared only with others of unknown
    energy, in dollars.
    """
    figures = np.array([(f.usd_mean, _or_nan(f.kwh)) for f in forecasts]).reshape(-1, 2)
    errors = np.array([(f.usd_error, _or_nan(f.kwh_error)) for f in forecasts]).reshape(-1, 2)
    unknown = np.isnan(figures)
    kept = np.ones(len(figures), dtype=bool)
    for i in range(len(figures)):
        slip = np.hypot(errors, errors[i]) + MERGE_TOLERANCE * np.abs(figures[i])
        as_good = ((figures <= figures[i] + slip) | (unknown & unknown[i])).all(axis=1)
        better = (figures < figures[i] - slip).any(axis=1)
        # A beaten one beats no other, or a ring of ever so little better ones would leave none.
        kept[i] = not (kept & as_good & better).any()
    return [bool(keep) for keep in kept]


def select_spread(points: Sequence[FrontierPoint], most: int) -> tuple[FrontierPoint, ...]:
    """Return at most ``most`` points: the best in each figure, then ever the farthest from all."""
    if len(points) <= most:
        return tuple(points)
    figures = _figures(points)
    # Among those of known energy one of unknown energy is far from none for that alone.
    figures = np.where(np.isnan(figures), _means(figures), figures)
    span = np.ptp(figures, axis=0)
    unit = (figures - figures.min(axis=0)) / np.where(span > 0, span, 1.0)
    chosen = list(dict.fromkeys(int(i) for i in unit.argmin(axis=0)))[:most]
    while len(chosen) < most:
        gaps = np.min([np.linalg.norm(unit - unit[i], axis=1) for i in chosen], axis=0)
        chosen.append(int(gaps.argmax()))
    return tuple(points[i] for i in sorted(chosen))


def _figures(points: Sequence[FrontierPoint]) -> Array:
    """(points, 3): dollars, kWh, hours from the earliest finish to the point's."""
    first = min(point.forecast.finish_p50_at for point in points)
    return np.array(
        [
            (p.usd, _or_nan(p.kwh), (p.forecast.finish_p50_at - first).total_seconds() / 3600)
            for p in points
        ]
    )


def _means(figures: Array) -> Array:
    """The mean of what is known of each figure, 0 where nothing is."""
    known = ~np.isnan(figures)
    means: Array = np.nan_to_num(figures).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means


def _order(point: FrontierPoint) -> tuple[float, float, datetime]:
    kwh = math.inf if point.kwh is None else point.kwh
    return point.usd, kwh, point.forecast.finish_p50_at


def _or_nan(figure: float | None) -> float:
    return math.nan if figure is None else figure


def restrict_offers(request: PlanRequest, parts: Sequence[PlannedJob]) -> PlanRequest:
    """Return the request with only the offers of its jobs' tables, for repeated solves."""
    pools = {offer.pool for part in parts for offer in part.table.offers}
    return replace(request, offers=tuple(o for o in request.offers if o.pool in pools))


def with_objective(request: PlanRequest, objective: Objective) -> PlanRequest:
    """Return the request under another objective."""
    return replace(request, policy=replace(request.policy, objective=objective))


def part_with_objective(part: PlannedJob, objective: Objective) -> PlannedJob:
    """Return the part scored by another objective, at present prices.

    Where the objective weighs carbon, rows of unknown carbon intensity cannot be used.
    """
    scored = replace(part, table=part.table.scored_by(objective))
    return of_known_carbon(scored) if objective.usd_per_tonne_co2e > 0 else scored


def of_known_carbon(part: PlannedJob) -> PlannedJob:
    """Return the part without the rows of unknown carbon intensity."""
    known = np.isfinite(part.table.gco2e_per_kwh)
    until_h = np.where(known, part.table.until_h, -np.inf)
    return replace(part, table=replace(part.table, until_h=until_h))


def objective_usd(segments: Sequence[Segment], objective: Objective) -> float:
    """Return the score of segments under an objective; NaN where it weighs unknown carbon."""
    usd, kwh = sum(s.usd for s in segments), sum(s.kwh for s in segments)
    weighs = objective.usd_per_tonne_co2e > 0
    grams = sum(s.kwh * s.gco2e_per_kwh for s in segments) if weighs else 0.0
    return objective.score_usd(usd, kwh, grams)


def restrict_rows(table: ConfigurationTable, rows: NDArray[np.int64]) -> ConfigurationTable:
    """Return the table of the rows with these numbers, in this order, with only their offers."""
    taken = table.take(rows)
    plain = taken.offer >= 0
    used = np.unique(np.concatenate((taken.offer[plain], taken.spread.offer)))
    offer = np.where(plain, np.searchsorted(used, taken.offer), -1)
    spread = replace(taken.spread, offer=np.searchsorted(used, taken.spread.offer))
    offers = tuple(table.offers[number] for number in used.tolist())
    return replace(taken, offers=offers, offer=offer, spread=spread)
