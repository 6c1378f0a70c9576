"""Forecasts of spot prices from a recorded market: the recent drift, where it has proven to go on.

A price is forecast as the present one times the drift of the last 12 hours to the power of a
weight: log p(t + h) = log p(t) + w(h) · (log p(t) − log p(t − 12 h)). w > 0 says that prices go on
as they did, w < 0 that they turn back, w = 0 is persistence. w(h) minimizes the mean absolute error
over the last 14 days of all zones of an instance type, at 1, 6, 24, 72 and 168 hours, linear in
between. A pool takes w(h) only if a weight that was fitted on the first two thirds of those days
beat persistence on its own last third; else w(h) = 0, and a pool without any weight has no series.

Measured on prices of p3.2xlarge in five AWS zones, 16 February to 2 April 2023 (public, with "Can't
Be Late", NSDI 2024), mean absolute error of ``python -m benchmarks forecast`` as a share of the
price: 1 h 0.028 % (persistence 0.028 %), 6 h 0.191 % (0.217 %), 24 h 0.620 % (0.781 %), 72 h
2.262 % (2.301 %). On the list prices of spot that Google Cloud publishes (Cyclenerd's price files,
2022 to 2026), which change every few weeks, no pool gets a series: persistence it is. What did
worse on the AWS prices, as multiples of persistence's error at 1, 6, 24 and 72 h: a profile of the
hours of the day 1.35, 1.04, 1.00, 1.00, of the week 2.72, 1.27, 1.07, 1.01; reversion to the week's
mean 1.39, 1.01, 0.98, 1.00.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Series
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.market import Pool

Floats = NDArray[np.float64]

WINDOW_HOURS = 14 * 24
DRIFT_HOURS = 12
HORIZONS_HOURS = (1, 6, 24, 72, 168)
MIN_ORIGINS = 72
"""Hours whose outcome must be known before a weight is fitted."""
TRAINED_SHARE = 2 / 3
WEIGHTS: Floats = np.linspace(-1.0, 1.5, 26)
FINE_HOURS, COARSE_STEP_HOURS = 24, 6
"""A series steps hourly for a day, then every six hours."""


def forecast_prices(
    history: MarketHistory, pools: Iterable[Pool], now: datetime, horizon_at: datetime
) -> dict[Pool, Series]:
    """Dollars per node-hour from ``now`` to ``horizon_at``, from what was recorded by ``now``.

    Only interruptible pools whose price is known now and whose forecast has beaten persistence have
    a series; for the others the present price is the forecast.
    """
    kinds: dict[tuple[str, str], list[Pool]] = defaultdict(list)
    for pool in pools:
        if pool.capacity_type.is_interruptible and pool in history.pools and horizon_at > now:
            kinds[pool.provider, pool.instance_type].append(pool)
    found: dict[Pool, Series] = {}
    for alike in kinds.values():
        logs = np.stack([_hourly_log_prices(history.pools[pool], now) for pool in alike])
        for pool, own, weights in zip(alike, logs, _weights(logs), strict=True):
            if weights.any():
                source = f"drift of {history.name}'s prices over {DRIFT_HOURS} h"
                found[pool] = _series(own, weights, now, horizon_at, source)
    return found


def _hourly_log_prices(recorded: PoolHistory, now: datetime) -> Floats:
    """The logarithm of the price at every full hour before ``now``, ``now`` last; NaN unknown."""
    count = WINDOW_HOURS + DRIFT_HOURS + 1
    begin = now - timedelta(hours=count - 1)
    first = recorded.at(begin)
    states = [*([first] if first else []), *recorded.between(begin, now)]
    prices = np.full(count, np.nan)
    for state in states:
        from_hour = max(0.0, (state.starts_at - begin).total_seconds() / 3600)
        known = state.price_usd_per_hour
        prices[int(np.ceil(from_hour - 1e-9)) :] = np.nan if known is None else np.log(known)
    if now >= recorded.ends_at:
        prices[-1] = np.nan
    return prices


def _weights(logs: Floats) -> Floats:
    """w by pool (rows) and horizon (columns)."""
    weights = np.zeros((len(logs), len(HORIZONS_HOURS)))
    for column, hours in enumerate(HORIZONS_HOURS):
        last = logs.shape[1] - hours
        if last - DRIFT_HOURS < MIN_ORIGINS:
            continue
        drift = logs[:, DRIFT_HOURS:last] - logs[:, : last - DRIFT_HOURS]
        moved = logs[:, DRIFT_HOURS + hours :] - logs[:, DRIFT_HOURS:last]
        weights[:, column] = _proven_weights(drift, moved, hours)
    weights[np.isnan(logs[:, -1]) | np.isnan(logs[:, -1 - DRIFT_HOURS])] = 0.0
    return weights


def _proven_weights(drift: Floats, moved: Floats, hours: int) -> Floats:
    """The weight of each pool at one horizon: 0 unless it held on what it was not fitted to."""
    known = ~(np.isnan(drift) | np.isnan(moved))
    if known.any(axis=0).sum() < MIN_ORIGINS:
        return np.zeros(len(drift))
    drift, moved = np.where(known, drift, 0.0), np.where(known, moved, 0.0)
    cut = int(drift.shape[1] * TRAINED_SHARE)
    # An outcome within the last third is excluded from training: it would be known too early.
    trained = _best_weight(drift[:, : max(cut - hours, 1)], moved[:, : max(cut - hours, 1)])
    without = np.abs(moved[:, cut:]).sum(axis=1)
    with_it = np.abs(moved[:, cut:] - trained * drift[:, cut:]).sum(axis=1)
    weight = _best_weight(drift, moved)
    proven: Floats = np.where(with_it < without, weight, 0.0)
    return proven if weight * trained > 0 else np.zeros(len(drift))


def _best_weight(drift: Floats, moved: Floats) -> float:
    """Of the least mean absolute error; the smallest of those that are equal."""
    errors = [float(np.abs(moved - weight * drift).sum()) for weight in WEIGHTS]
    least = min(errors)
    return float(
        min((w for w, e in zip(WEIGHTS, errors, strict=True) if e <= least + 1e-12), key=abs)
    )


def _series(
    logs: Floats, weights: Floats, now: datetime, horizon_at: datetime, source: str
) -> Series:
    """Steps with the value of their begin, so that the first one is the present price."""
    hours = _steps((horizon_at - now).total_seconds() / 3600)
    drift = logs[-1] - logs[-1 - DRIFT_HOURS]
    weight = np.interp(hours, [0.0, *HORIZONS_HOURS], [0.0, *weights])
    values = np.exp(logs[-1] + weight * drift)
    at = tuple(now + timedelta(hours=hour) for hour in hours)
    return Series(at, tuple(float(value) for value in values), source)


def _steps(length_hours: float) -> Sequence[float]:
    """Where the steps begin, in hours from now."""
    fine = [float(hour) for hour in range(FINE_HOURS)]
    coarse = np.arange(FINE_HOURS, max(length_hours, FINE_HOURS), COARSE_STEP_HOURS).tolist()
    return [hour for hour in [*fine, *coarse] if hour < length_hours]
