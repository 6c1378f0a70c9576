"""The change of runs on interruptible capacity to the fallback, as the strategies' shield does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.pruning import (
    lower_hull,
    single_held_h,
    single_score,
    single_work_units,
    usable_h,
)
from costopt.optimize.random_draws import RandomDraws, RunSamples, within
from costopt.optimize.rates import Array

MAX_FALLBACKS = 4
"""How many gangs that are faster than the one held back are looked at as the fallback."""

LATE_H = 1e-6
"""Less than this after its due time a run is in time: solvers leave no plan exact."""

LATENESS_PENALTY_USD = 1e9
"""A run that ends late is worse than any cost."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRisks:
    """Which runs may change, when they begin, and the hours of a start and until its first save.

    Figures have shape (runs,).
    """

    shaky: NDArray[np.bool_]
    begin_h: Array
    start_h: Array
    unsaved_h: Array

    @classmethod
    def of(cls, table: ConfigurationTable, rows: NDArray[np.int64], begin_h: Array) -> Self:
        """Return the risks of a run on each row."""
        shaky = ~table.firm[rows]
        # What is never interrupted has nothing to lose.
        held = shaky & (table.hazard_high[rows] > 0)
        start_h, unsaved_h = (
            np.where(held, h[rows], 0.0) for h in (table.start_h, table.unsaved_h)
        )
        return cls(shaky, begin_h, start_h, unsaved_h)

    def of_one_run(self) -> Self:
        """Return the risks of one run on all the rows, one after the other."""
        return type(self)(
            self.shaky.max(keepdims=True),
            self.begin_h[:1],
            self.start_h[:1],
            self.unsaved_h.min(keepdims=True),
        )


def choose_fallback_row(table: ConfigurationTable, demand: Demand) -> int | None:
    """Return the fallback row: the cheapest uninterruptible one in time alone, else the fastest."""
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
    risks: RunRisks,
    demand: Demand,
    draws: RandomDraws,
) -> RunSamples:
    """Return each run with the fallback that is the cheapest for it on average.

    A slow fallback must begin early, and a fast one costs more an hour.
    """
    if not risks.shaky.any():
        return samples
    best, best_usd = samples, np.full(len(risks.shaky), np.inf)
    for row in _fallback_rows(table, demand):
        held = _fall_back_to(row, table, samples, risks, demand, draws)
        late = (held.finish_h > demand.due_h + LATE_H).mean(axis=1)
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
    risks: RunRisks,
    demand: Demand,
    draws: RandomDraws,
) -> RunSamples:
    """Change to uninterrupted capacity at the last moment that still ends by the due time.

    At a mean pace of W / run hours the rest of the work at time s must fit the safe pace r:
    (1 − s / run) · W / r + δ + i = due − begin − s.
    An interruptible launch that must be left before its first save is not made: i is a start and
    the interval between saves, whose work counts as lost until then.
    """
    begin_h = risks.begin_h[:, None]
    run_h = samples.finish_h - begin_h
    safe_units = float(single_work_units(table, demand)[row])
    safe_h = safe_units / np.maximum(_safe_units_per_hour(table, row, draws), 1e-300)[None, :]
    restore_h = float(table.restore_h[row])
    start_h = float(table.start_h[row]) + restore_h
    start_usd = float(table.usd_per_start[row] + restore_h * table.node_usd_per_hour[row])
    safe_by_h = demand.due_h - risks.unsaved_h[:, None]
    slack_h = safe_by_h - risks.start_h[:, None] - begin_h - start_h - safe_h
    switch_h = slack_h / np.maximum(1 - safe_h / np.maximum(run_h, 1e-9), 1e-9)
    switch_h = np.maximum(switch_h, 0.0)
    late = (samples.finish_h > safe_by_h + LATE_H) | (slack_h < 0)
    changes = risks.shaky[:, None] & late & (safe_h < run_h)
    share = np.where(changes, np.clip(switch_h / np.maximum(run_h, 1e-9), 0.0, 1.0), 1.0)
    rest_h = np.where(changes, (1 - share) * safe_h, 0.0)
    paid_start_h = np.where(changes, start_h, 0.0)
    rest_usd = table.usd_per_hour[row] * rest_h + np.where(changes, start_usd, 0.0)
    rest_kwh = np.where(
        changes, table.busy_kw[row] * rest_h + table.idle_kw[row] * paid_start_h, 0.0
    )
    return RunSamples(
        np.where(changes, begin_h + share * run_h + rest_h + paid_start_h, samples.finish_h),
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
