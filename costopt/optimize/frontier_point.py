"""A plan of a frontier, and which plans of many stand on one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costopt.domain.plan import Allocation, Forecast
from costopt.optimize.rates import Array

ALIKE = 1e-4
"""Figures that differ by less than this share are taken as equal."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A plan that no other one is better than in dollars, kWh and median finish at once.

    ``usd`` and ``kwh`` are means, the change to uninterrupted capacity included.
    """

    usd: float
    kwh: float
    forecast: Forecast
    allocations: tuple[Allocation, ...]


def non_dominated(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """By ascending dollars, without those that another equals or betters in all three figures."""
    if not points:
        return []
    order = sorted(points, key=lambda p: (p.usd, p.kwh, p.forecast.finish_p50_at))
    kept = unbeaten(_figures(order))
    return [point for point, keep in zip(order, kept, strict=True) if keep]


def unbeaten(figures: Array) -> list[bool]:
    """Which rows of (points, figures) no other one equals or betters in every figure.

    Of rows that are alike the first one stays. Less is better.
    """
    scale = np.maximum(np.abs(figures).max(axis=0), 1e-12)
    slip = ALIKE * np.maximum(np.abs(figures), 1e-3 * scale)
    kept = np.ones(len(figures), dtype=bool)
    for i in range(len(figures)):
        as_good = kept & (figures <= figures[i] + slip[i]).all(axis=1)
        as_good[i] = False
        better = (figures < figures[i] - slip[i]).any(axis=1)
        before = np.arange(len(figures)) < i
        kept[i] = not (as_good & (better | before)).any()
    return [bool(keep) for keep in kept]


def surely_unbeaten(forecasts: Sequence[Forecast]) -> list[bool]:
    """Which forecasts no other one betters in median dollars or kWh without being worse in both.

    What differs by less than the noise of their simulations counts as equal, so that forecasts that
    are alike are unbeaten together.
    """
    figures = np.array([(f.usd_p50, f.kwh) for f in forecasts]).reshape(-1, 2)
    errors = np.array([(f.usd_error, f.kwh_error) for f in forecasts]).reshape(-1, 2)
    kept = np.ones(len(figures), dtype=bool)
    for i in range(len(figures)):
        slip = np.hypot(errors, errors[i]) + ALIKE * np.abs(figures[i])
        as_good = (figures <= figures[i] + slip).all(axis=1)
        better = (figures < figures[i] - slip).any(axis=1)
        # A beaten one beats no other, or a ring of ever so little better ones would leave none.
        kept[i] = not (kept & as_good & better).any()
    return [bool(keep) for keep in kept]


def spread_out(points: Sequence[FrontierPoint], most: int) -> tuple[FrontierPoint, ...]:
    """At most so many of the points: the best in each figure, then ever those farthest from all."""
    if len(points) <= most:
        return tuple(points)
    figures = _figures(points)
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
        [(p.usd, p.kwh, (p.forecast.finish_p50_at - first).total_seconds() / 3600) for p in points]
    )
