"""The forecast of a configuration or a plan: a seeded, vectorised Monte Carlo of interruptions.

A sample draws the speed and the hazard from their intervals (normal, the 90 % interval as given),
the number of interruptions from a Poisson distribution whose mean is the hazard times the expected
paid time of ``rates.paid_to_useful_ratio``, what they cost from a normal sum of restarts and
uniform lost work with that same mean, and the waits for capacity from a gamma distribution whose
mean agrees with the pool's availability. Where the policy allows uninterruptible capacity, a run
that would end late falls back to it at the last safe moment, as the strategies' shield does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import Offer
from costopt.domain.plan import Forecast
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fallback import RunRisks, apply_fallback, choose_fallback_row
from costopt.optimize.pruning import single_work_units
from costopt.optimize.random_draws import (
    RandomDraws,
    RunSamples,
    draw_randoms,
    gamma_quantile,
    poisson_quantile,
    runs_within_budget,
    within,
)
from costopt.optimize.rates import Array, paid_to_useful_ratio
from costopt.optimize.segments import Segment
from costopt.optimize.slots import AVAILABILITY_HORIZON_H

CANDIDATE_SAMPLES = 200
PLAN_SAMPLES = 2000

UNOBSERVED_CAPACITY_SHARE = 0.117
"""The least share of the time with capacity among twelve zones of the public availability records
of 2022 and 2023 (skypilot-org/spot-traces): us-west-2b, one K80."""

MAX_HORIZON_H = 1e6
"""How many times its own work a job is said to take where it cannot be done: floats stay finite."""


def forecast_rows(
    table: ConfigurationTable, rows: NDArray[np.int64], demand: Demand, now: datetime
) -> list[Forecast]:
    """Return a forecast of the whole job on each row alone, from the earliest time it may begin."""
    draws = draw_randoms(CANDIDATE_SAMPLES)
    usable_now = table.now[rows] | table.running[rows]
    begin_h = np.where(usable_now, demand.release_h, max(demand.release_h, AVAILABILITY_HORIZON_H))
    begin_h = np.maximum(begin_h, table.from_h[rows])
    samples = simulate_rows(table, rows, demand, draws)
    shifted = replace(samples, finish_h=samples.finish_h + begin_h[:, None])
    risks = RunRisks.of(table, rows, begin_h)
    held = apply_fallback(table, shifted, risks, demand, draws)
    forecasts = _forecasts(held, table.power_error[rows], risks.shaky, demand, now)
    if choose_fallback_row(table, demand) is not None:
        return forecasts
    return [_doubt_capacity(f, table, [row]) for f, row in zip(forecasts, rows, strict=True)]


def simulate_rows(
    table: ConfigurationTable, rows: NDArray[np.int64], demand: Demand, draws: RandomDraws
) -> RunSamples:
    """Return runs of the whole job on each row; the finish counts from the run's own begin."""
    start_h = np.where(table.running[rows], demand.starting_h, table.start_h[rows])
    most = MAX_HORIZON_H * max(demand.units, 1e-300)
    units = np.minimum(single_work_units(table, demand)[rows], most)
    return _simulate(table, rows, units, start_h, np.zeros(len(rows)), draws)


def forecast_segments(
    table: ConfigurationTable, segments: Sequence[Segment], demand: Demand, now: datetime
) -> tuple[Forecast, RunSamples]:
    """Return the forecast of a job's planned segments, one after the other, and its samples."""
    draws = draw_randoms(PLAN_SAMPLES, range(len(segments)))
    rows = np.array([segment.row for segment in segments], dtype=np.int64)
    hours = np.array([segment.hours for segment in segments])
    samples = _simulate(
        table,
        rows,
        hours * table.paid_units_per_hour[rows],
        np.array([segment.start_h for segment in segments]),
        _restores_h(table, segments),
        draws,
    )
    samples = _at_planned_prices(table, rows, segments, samples)
    finish_h = np.full(PLAN_SAMPLES, demand.release_h)
    for segment, run_h in zip(segments, samples.finish_h, strict=True):
        finish_h = np.maximum(finish_h, segment.earliest_h) + run_h
    whole = RunSamples(
        finish_h[None, :],
        samples.usd.sum(axis=0, keepdims=True),
        samples.kwh.sum(axis=0, keepdims=True),
        samples.interruptions.sum(axis=0, keepdims=True),
        samples.gco2e.sum(axis=0, keepdims=True),
        samples.changed.max(axis=0, keepdims=True),
    )
    begin_h = np.array([segment.begin_h for segment in segments])
    risks = RunRisks.of(table, rows, begin_h).of_one_run()
    held = apply_fallback(table, whole, risks, demand, draws)
    error = np.array([float(table.power_error[rows].max())])
    (forecast,) = _forecasts(held, error, risks.shaky, demand, now)
    if choose_fallback_row(table, demand) is None:
        forecast = _doubt_capacity(forecast, table, rows.tolist())
    return forecast, held


def _restores_h(table: ConfigurationTable, segments: Sequence[Segment]) -> Array:
    """What starts after the first take longer, as they load a checkpoint."""
    later = [number > 0 and segment.start_h > 0 for number, segment in enumerate(segments)]
    return table.restore_h[[segment.row for segment in segments]] * later


def _doubt_capacity(forecast: Forecast, table: ConfigurationTable, rows: Sequence[int]) -> Forecast:
    """Return the forecast of a job without a fallback, less sure where capacity was not measured.

    Runs are simulated as if its pools had capacity when needed: they have it at least for this
    share of the time.
    """
    waiting = [row for row in rows if not (table.running[row] or table.firm[row])]
    share = min((capacity_share(o) for row in waiting for o in table.row_offers(row)), default=1.0)
    if share >= 1:
        return forecast
    sure = forecast.on_time
    source = f"{sure.source}; at the low end, capacity {share:.1%} of the time"
    doubted = replace(sure, low=share * sure.low, basis=Basis.PRIOR, source=source)
    return replace(forecast, on_time=doubted)


def capacity_share(offer: Offer) -> float:
    """Return the least share of the time in which a pool has capacity, 1 where it was measured."""
    if offer.availability is None:
        return 1.0 if offer.nodes_available is not None else UNOBSERVED_CAPACITY_SHARE
    return 1.0 if offer.availability.basis is Basis.MEASURED else offer.availability.low


def _at_planned_prices(
    table: ConfigurationTable,
    rows: NDArray[np.int64],
    segments: Sequence[Segment],
    samples: RunSamples,
) -> RunSamples:
    """Dollars and grams at the prices and the carbon intensity of when each segment is planned."""
    present = [
        float(_usd(table, rows[i : i + 1], np.array([[s.hours]]), np.array([s.start_h]))[0, 0])
        for i, s in enumerate(segments)
    ]
    planned = np.array([s.usd for s in segments])
    ratio = np.divide(planned, present, out=np.ones(len(segments)), where=np.array(present) > 0)
    intensity = np.array([s.gco2e_per_kwh for s in segments])
    return replace(
        samples, usd=samples.usd * ratio[:, None], gco2e=samples.kwh * intensity[:, None]
    )


def with_time_margin(table: ConfigurationTable, share: float) -> ConfigurationTable:
    """Return the table for plans that hold back only this share of the time for the worst case.

    The rest is left to the fallback, should the worst case occur.
    """
    return replace(table, stretch=table.calendar + share * (table.stretch - table.calendar))


def done_forecast(now: datetime) -> Forecast:
    """Return the forecast of a job that has no remaining work."""
    source = "nothing is left to do"
    certain, never = (Estimate.exact(p, Basis.MEASURED, source, now) for p in (1.0, 0.0))
    return Forecast(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, now, now, certain, never)


def _simulate(
    table: ConfigurationTable,
    rows: NDArray[np.int64],
    units: Array,
    start_h: Array,
    restore_h: Array,
    draws: RandomDraws,
) -> RunSamples:
    """Runs of ``units`` each on its row; finish counts from the run's own begin.

    A start takes ``start_h`` hours and then ``restore_h``.
    """
    interval_s, save_s = table.interval_s[rows][:, None], table.save_s[rows][:, None]
    lossless = table.lossless[rows][:, None]
    restart_s = table.restart_s[rows][:, None]
    speed = within(table.speed[rows], table.speed_low[rows], table.speed_high[rows], draws.speed)
    speed = np.maximum(speed, 0.01 * table.speed[rows][:, None])
    hazard = within(
        table.hazard[rows], table.hazard_low[rows], table.hazard_high[rows], draws.hazard
    )
    hazard = np.maximum(hazard, 0.0)
    useful_h = units[:, None] / speed / 3600
    calm_h = useful_h * (interval_s + save_s) / interval_s
    mean_h = np.minimum(
        useful_h * paid_to_useful_ratio(hazard, interval_s, save_s, restart_s, lossless), 1e12
    )
    expected = np.minimum(hazard * mean_h, 1e9)
    hits = poisson_quantile(expected, draws.events)
    each_h = (mean_h - calm_h) / np.maximum(expected, 1e-12)
    redone_s = np.where(lossless, 0.0, interval_s)
    ragged = (redone_s / math.sqrt(12)) / np.maximum(restart_s + redone_s / 2, 1e-9)
    lost_h = np.maximum(0.0, each_h * (hits + ragged * np.sqrt(hits) * draws.loss[None, :]))
    paid_h = calm_h + lost_h
    away_h = _waits_h(table.calendar[rows], mean_h, expected, hits, draws)
    wait_h = _share_of_start(table, rows, start_h) * table.wait_h[rows]
    paid_start_h = start_h - wait_h + restore_h
    idle_h = np.minimum(hits * restart_s / 3600, lost_h) + paid_start_h[:, None]
    all_h = paid_h + paid_start_h[:, None]
    kwh = table.busy_kw[rows][:, None] * (all_h - idle_h) + table.idle_kw[rows][:, None] * idle_h
    return RunSamples(
        all_h + away_h + wait_h[:, None],
        _usd(table, rows, paid_h, start_h) + (table.node_usd_per_hour[rows] * restore_h)[:, None],
        kwh,
        hits,
        kwh * table.gco2e_per_kwh[rows][:, None],
        np.zeros_like(hits),
    )


def _usd(
    table: ConfigurationTable, rows: NDArray[np.int64], paid_h: Array, start_h: Array
) -> Array:
    """Dollars of paid hours and of a start, of which a living gang may have only a part left."""
    starts = _share_of_start(table, rows, start_h)
    paid_start_h = start_h - starts * table.wait_h[rows]
    start_usd = table.node_usd_per_hour[rows] * paid_start_h + table.transfer_usd[rows] * starts
    usd: Array = table.usd_per_hour[rows][:, None] * paid_h + start_usd[:, None]
    return usd


def _share_of_start(table: ConfigurationTable, rows: NDArray[np.int64], start_h: Array) -> Array:
    share: Array = start_h / np.maximum(table.start_h[rows], 1e-12)
    return share


def _waits_h(
    calendar: Array, mean_h: Array, expected: Array, hits: Array, draws: RandomDraws
) -> Array:
    """Waits for capacity: none where a pool is always available, which most are said to be."""
    away_h = np.zeros_like(hits)
    scarce = np.flatnonzero(calendar > 1 + 1e-9)
    if not len(scarce):
        return away_h
    total_h = mean_h[scarce] * (calendar[scarce] - 1)[:, None]
    each_h = total_h / np.maximum(expected[scarce], 1e-12)
    waits = np.broadcast_to(draws.waits, hits.shape)[scarce]
    drawn = gamma_quantile(hits[scarce], waits) * each_h
    away_h[scarce] = np.where(expected[scarce] < 1e-9, total_h, drawn)
    return away_h


def _forecasts(
    samples: RunSamples,
    power_error: Array,
    shaky: NDArray[np.bool_],
    demand: Demand,
    now: datetime,
    of: str = "simulated runs",
) -> list[Forecast]:
    """One forecast a row of ``samples``; ``shaky`` are those that may change to the fallback."""
    deadline_h = (demand.job.until_at - now).total_seconds() / 3600
    runs = samples.usd.shape[1]
    source = f"{runs} {of}"
    usd = np.quantile(samples.usd, [0.5, 0.95], axis=1)
    finish = np.quantile(samples.finish_h, [0.5, 0.95], axis=1)
    kwh_edges = np.quantile(samples.kwh, [0.05, 0.95], axis=1)
    kwh = samples.kwh.mean(axis=1)
    grams = samples.gco2e.mean(axis=1)
    affordable = runs_within_budget(samples, demand.job.budget)
    in_time = samples.finish_h <= deadline_h + 1e-9
    if affordable is not None:
        in_time &= affordable
    interruptions, changed = samples.interruptions.mean(axis=1), samples.changed.sum(axis=1)
    powered = np.isfinite(kwh)
    return [
        Forecast(
            usd_mean=float(samples.usd[i].mean()),
            usd_p50=float(usd[0, i]),
            usd_p95=float(usd[1, i]),
            kwh=_known(kwh[i]),
            kwh_low=_known(min(kwh[i], kwh_edges[0, i]) * (1 - power_error[i])),
            kwh_high=_known(max(kwh[i], kwh_edges[1, i]) * (1 + power_error[i])),
            gco2e=_known(grams[i]),
            finish_p50_at=_at(now, float(finish[0, i])),
            finish_p95_at=_at(now, float(finish[1, i])),
            on_time=Estimate.of_share(int(in_time[i].sum()), runs, source),
            falls_back=Estimate.of_share(int(changed[i]), runs, source)
            if shaky[i]
            else Estimate.exact(0.0, Basis.MODELLED, "uninterruptible capacity only"),
            expected_interruptions=float(interruptions[i]),
            usd_error=float(samples.usd[i].std()) / math.sqrt(runs),
            energy_basis=Basis.MODELLED if powered[i] else None,
            kwh_error=_known(samples.kwh[i].std() / math.sqrt(runs)),
            within_budget=None
            if affordable is None
            else Estimate.of_share(int(affordable[i].sum()), runs, source),
        )
        for i in range(len(power_error))
    ]


def forecast_of_runs(
    runs: RunSamples, power_error: float, demand: Demand, now: datetime, of: str, *, shaky: bool
) -> Forecast:
    """Return the forecast of the runs ``of`` something, whose power has this relative error.

    ``shaky``: they may change to uninterruptible capacity.
    """
    error, may_change = np.array([power_error]), np.array([shaky])
    (forecast,) = _forecasts(runs, error, may_change, demand, now, of)
    return forecast


def _known(figure: float) -> float | None:
    """The figure, or None where it is NaN."""
    return float(figure) if math.isfinite(figure) else None


def _at(now: datetime, hours: float) -> datetime:
    """Cap a far finish at a hundred years from now, the farthest that dates represent safely."""
    return now + timedelta(hours=min(hours, 876_600.0))
