"""A plan of a frontier, and which plans of many stand on one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from costopt.domain.plan import Allocation, Forecast
from costopt.optimize.rates import Array

MERGE_TOLERANCE = 1e-4
"""Figures that differ by less than this share are taken as equal."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A plan that no other one is better than in dollars, kWh and median finish at once.

    ``usd`` and ``kwh`` are means, the change to uninterrupted capacity included; ``kwh`` is None
    where the power of a node is unknown.
    """

    usd: float
    kwh: float | None
    forecast: Forecast
    allocations: tuple[Allocation, ...]


def non_dominated(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """By ascending dollars, without those that another equals or betters in all three figures.

    A plan of unknown energy compares with others of unknown energy alone, in the other two.
    """
    if not points:
        return []
    order = sorted(points, key=_order)
    kept = non_dominated_mask(_figures(order))
    return [point for point, keep in zip(order, kept, strict=True) if keep]


def non_dominated_mask(figures: Array) -> list[bool]:
    """Which rows of (points, figures) no other one equals or betters in every figure.

    Of rows that are alike the first one stays. Less is better. A row with a NaN compares only with
    rows that have it in the same place, by their other figures.
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


def surely_unbeaten(forecasts: Sequence[Forecast]) -> list[bool]:
    """Which forecasts no other one betters in median dollars or kWh without being worse in both.

    What differs by less than the noise of their simulations counts as equal, so that forecasts that
    are alike are unbeaten together. A forecast of unknown energy compares with others of unknown
    energy alone, in dollars.
    """
    figures = np.array([(f.usd_p50, _or_nan(f.kwh)) for f in forecasts]).reshape(-1, 2)
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
    """At most so many of the points: the best in each figure, then ever those farthest from all."""
    if len(points) <= most:
        return tuple(points)
    figures = _figures(points)
    # Among those of known energy one of unknown energy is far from none for that alone.
    figures = np.where(np.isnan(figures), _means(figures), figures)
    span = np.ptp(figures, axis=0)
    unit = (figures - figures.min(axis=0)) / np.where(span > 0, span, 1.0)
    chosen = list(dict.fromkeys(int(i) for i in unit.argmin(axis=0)))[:most]
    while len(chosen) < most:
        gaps = np.min(
            [np.linalg.norm(unit - unit[i], axis=1) for i in chosen],
            axis=0,
        )
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
