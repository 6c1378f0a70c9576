"""The change to uninterrupted capacity that saves a run which would end late."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.prune import (
    lower_hull,
    single_held_h,
    single_score,
    single_work_units,
    usable_h,
)
from costopt.optimize.rates import Array
from costopt.optimize.samples import RandomDraws, RunSamples, within

MAX_FALLBACKS = 4
"""How many gangs that are faster than the one held back are looked at as the fallback."""

LATENESS_PENALTY_USD = 1e9
"""A run that ends late is worse than any cost."""


def choose_fallback_row(table: ConfigurationTable, demand: Demand) -> int | None:
    """The uninterrupted configuration held back: the cheapest in time alone, else the fastest."""
    lasting = (table.from_h <= demand.release_h) & (table.until_h >= demand.due_h)
    whole = np.isfinite(single_work_units(table, demand))
    safe = np.flatnonzero(table.firm & table.now & lasting & whole)
    if not len(safe):
        return None
    held_h = single_held_h(table, demand)[safe]
    in_time = safe[held_h <= demand.hours_left]
    if len(in_time):
        return int(in_time[np.argmin(single_score(table, demand)[in_time])])
    return int(safe[np.argmin(held_h)])


def apply_fallback(
    table: ConfigurationTable,
    samples: RunSamples,
    shaky: NDArray[np.bool_],
    begin_h: Array,
    demand: Demand,
    draws: RandomDraws,
) -> RunSamples:
    """Each run with the fallback that is the cheapest for it on average: a slow one must begin
    early, a fast one costs more an hour.
    """
    if not shaky.any():
        return samples
    best, best_usd = samples, np.full(len(begin_h), np.inf)
    for row in _fallback_rows(table, demand):
        held = _fall_back_to(row, table, samples, shaky, begin_h, demand, draws)
        late = (held.finish_h > demand.due_h + 1e-6).mean(axis=1)
        usd = held.usd.mean(axis=1) + np.where(late > 0, LATENESS_PENALTY_USD * late, 0.0)
        better = usd < best_usd
        best = _where(better, held, best)
        best_usd = np.minimum(usd, best_usd)
    return best


def _fallback_rows(table: ConfigurationTable, demand: Demand) -> list[int]:
    """The one held back, and faster ones that cost more an hour."""
    held = choose_fallback_row(table, demand)
    if held is None:
        return []
    safe = np.flatnonzero(table.firm & table.now & (usable_h(table, demand) > 0))
    hull = safe[lower_hull(table.paid_units_per_hour[safe], table.score_per_hour[safe])]
    faster = hull[table.paid_units_per_hour[hull] > table.paid_units_per_hour[held]]
    return [held, *faster[:MAX_FALLBACKS].tolist()]


def _where(better: NDArray[np.bool_], one: RunSamples, other: RunSamples) -> RunSamples:
    pick = better[:, None]
    return RunSamples(
        *(
            np.where(pick, getattr(one, field.name), getattr(other, field.name))
            for field in fields(RunSamples)
        )
    )


def _fall_back_to(
    row: int,
    table: ConfigurationTable,
    samples: RunSamples,
    shaky: NDArray[np.bool_],
    begin_h: Array,
    demand: Demand,
    draws: RandomDraws,
) -> RunSamples:
    """Change to uninterrupted capacity at the last moment that still ends by the due time.

    At a mean pace of W / run hours the rest of the work at time s must fit the safe pace r:
    (1 − s / run) · W / r + δ = due − begin − s.
    """
    run_h = samples.finish_h - begin_h[:, None]
    safe_units = float(single_work_units(table, demand)[row])
    safe_h = safe_units / np.maximum(_safe_units_per_hour(table, row, draws), 1e-300)[None, :]
    start_h = float(table.start_h[row])
    left_h = demand.due_h - begin_h[:, None]
    switch_h = (left_h - start_h - safe_h) / np.maximum(1 - safe_h / np.maximum(run_h, 1e-9), 1e-9)
    switch_h = np.maximum(switch_h, 0.0)
    changes = shaky[:, None] & (samples.finish_h > demand.due_h) & (safe_h < run_h)
    share = np.where(changes, np.clip(switch_h / np.maximum(run_h, 1e-9), 0.0, 1.0), 1.0)
    rest_h = np.where(changes, (1 - share) * safe_h, 0.0)
    paid_start_h = np.where(changes, start_h, 0.0)
    rest_usd = table.usd_per_hour[row] * rest_h + np.where(changes, table.usd_per_start[row], 0.0)
    rest_kwh = np.where(
        changes, table.busy_kw[row] * rest_h + table.idle_kw[row] * paid_start_h, 0.0
    )
    return RunSamples(
        np.where(
            changes, begin_h[:, None] + share * run_h + rest_h + paid_start_h, samples.finish_h
        ),
        share * samples.usd + rest_usd,
        share * samples.kwh + rest_kwh,
        share * samples.interruptions,
        share * samples.gco2e + np.where(changes, rest_kwh * table.gco2e_per_kwh[row], 0.0),
        changes.astype(float),
    )


def _safe_units_per_hour(table: ConfigurationTable, row: int, draws: RandomDraws) -> Array:
    only = np.array([row])
    speed = within(table.speed[only], table.speed_low[only], table.speed_high[only], draws.speed)
    slowest = 0.01 * table.speed[row]
    ratio: Array = np.maximum(speed[0], slowest) / table.speed[row]
    return float(table.paid_units_per_hour[row]) * ratio
