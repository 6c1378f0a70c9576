"""The policy of a job as an array program: many futures at once, tick by tick.

In each future the job is on one gang or waits. At a tick without a gang it takes the cheapest that
has capacity, by the policy's objective of the rest of the job; it keeps a gang until the pool takes
it back. Before that the shield decides, as ``costopt.strategies.shield`` does: where, after a tick
that adds nothing, the rest of the job could not be finished in time on uninterruptible capacity,
the job goes there at once, and stays. A launch that would have to be left before its first save is
not made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.configurations import scored
from costopt.optimize.random_draws import RunSamples
from costopt.optimize.rates import Array
from costopt.planning.forecast.futures import Futures
from costopt.planning.forecast.gangs import Gangs

WAITS = -1
UNFINISHED_H = 9.0
"""A run that is not done at the end of its future is said to take so many times its time."""


@dataclass(slots=True, eq=False)
class _Runs:
    """The runs by sample: ``left`` and ``unsaved`` are shares of the job, ``gang`` is its row."""

    left: Array
    unsaved: Array
    gang: NDArray[np.int64]
    starting_h: Array
    begun: NDArray[np.bool_]
    finish_h: Array
    usd: Array
    kwh: Array
    gco2e: Array
    interruptions: Array
    changed: NDArray[np.bool_]


def run_policy(
    gangs: Gangs,
    futures: Futures,
    objective: Objective,
    *,
    release_h: float,
    due_h: float,
    billed_to_h: float,
    begun: bool,
    gang: int = WAITS,
    starting_h: float = 0.0,
    unsaved: float = 0.0,
) -> RunSamples:
    """Return what the policy makes of each future; hours count from the first tick.

    The job runs on the row ``gang`` at present, which takes ``starting_h`` hours more to start, and
    has not saved so much of what it has done, as a share of the rest. Nodes are paid to the next
    multiple of ``billed_to_h`` hours after the work ends.
    """
    samples, tick_h = gangs.work_h.shape[1], futures.tick_s / 3600
    runs = _Runs(
        left=np.ones(samples),
        unsaved=np.full(samples, unsaved),
        gang=np.full(samples, gang),
        starting_h=np.full(samples, starting_h),
        begun=np.full(samples, begun),
        finish_h=np.full(samples, math.inf),
        usd=np.zeros(samples),
        kwh=np.zeros(samples),
        gco2e=np.zeros(samples),
        interruptions=np.zeros(samples),
        changed=np.zeros(samples, dtype=bool),
    )
    first = max(0, math.ceil(release_h / tick_h - 1e-9))
    ticks = futures.nodes.shape[2]
    for t in range(first, ticks):
        live = ~np.isfinite(runs.finish_h)
        if not live.any():
            break
        price = futures.price[:, :, min(t, futures.price.shape[2] - 1)]
        usd = _usd_per_hour(gangs, price, samples)
        up = futures.nodes[:, :, t] >= gangs.nodes[: gangs.interruptible]
        _interrupt(gangs, runs, up)
        _decide(gangs, runs, live, up, usd, objective, due_h - t * tick_h, tick_h)
        _advance(gangs, runs, live, usd, t * tick_h, tick_h, billed_to_h)
    unfinished_h = UNFINISHED_H * max(due_h, tick_h)
    return RunSamples(
        finish_h=np.where(np.isfinite(runs.finish_h), runs.finish_h, unfinished_h)[None, :],
        usd=runs.usd[None, :],
        kwh=runs.kwh[None, :],
        interruptions=runs.interruptions[None, :],
        gco2e=runs.gco2e[None, :],
        changed=runs.changed.astype(float)[None, :],
    )


def _usd_per_hour(gangs: Gangs, price: Array, samples: int) -> Array:
    """Dollars an hour, shape (samples, gangs); uninterruptible capacity keeps its price."""
    ratio = np.ones((samples, len(gangs.offers)))
    ratio[:, : gangs.interruptible] = price
    return gangs.price_usd * ratio + gangs.other_usd


def _are_on_spot(gangs: Gangs, runs: _Runs) -> NDArray[np.bool_]:
    on_spot: NDArray[np.bool_] = (runs.gang != WAITS) & (runs.gang < gangs.interruptible)
    return on_spot


def _interrupt(gangs: Gangs, runs: _Runs, up: NDArray[np.bool_]) -> None:
    if not gangs.interruptible:
        return
    samples = np.arange(len(runs.gang))
    gang = np.minimum(np.maximum(runs.gang, 0), gangs.interruptible - 1)
    lost = _are_on_spot(gangs, runs) & ~up[samples, gang] & ~np.isfinite(runs.finish_h)
    trained = lost & (runs.starting_h <= 0)
    share = gangs.lost_h[gang] / gangs.work_h[gang, samples]
    runs.left += np.where(trained, share, 0.0)
    runs.interruptions += lost
    runs.unsaved[lost] = 0.0
    runs.gang[lost] = WAITS
    runs.starting_h[lost] = 0.0


def _decide(
    gangs: Gangs,
    runs: _Runs,
    live: NDArray[np.bool_],
    up: NDArray[np.bool_],
    usd: Array,
    objective: Objective,
    left_h: float,
    tick_h: float,
) -> None:
    samples, spot = np.arange(len(runs.gang)), gangs.interruptible
    work_h = gangs.work_h.T
    score = scored(objective, usd, np.nan_to_num(gangs.busy_kw), np.nan_to_num(gangs.gco2e_per_kwh))
    score = score * work_h
    waits, on_spot = runs.gang == WAITS, _are_on_spot(gangs, runs)
    if spot:
        offered = np.where(up, score[:, :spot], math.inf)
        best = offered.argmin(axis=1)
        some_up = np.isfinite(offered[samples, best])
    else:
        best, some_up = np.zeros(len(samples), dtype=np.int64), np.zeros(len(samples), dtype=bool)
    start_h = np.where(runs.begun[:, None], gangs.restart_h, gangs.start_h)
    if len(gangs.offers) > spot:
        safe, slack_h = _fallback(gangs, runs, score, start_h, left_h)
        gang = np.where(on_spot, runs.gang, best)
        rest_h = runs.left * work_h[samples, gang]
        begins_h = np.where(on_spot, runs.starting_h, start_h[samples, gang])
        ends_here = (on_spot | some_up) & (rest_h + begins_h <= min(tick_h, left_h))
        first_save_h = (slack_h - start_h[samples, gang]) / 2
        first_save_h = np.clip(first_save_h, gangs.risky_interval_h[gang], gangs.interval_h[gang])
        first_save_h = first_save_h + start_h[samples, gang] + gangs.save_h[gang]
        saved_in_time = slack_h >= first_save_h + tick_h
        holds = (slack_h >= tick_h) & (on_spot | saved_in_time | ~some_up)
        # Without spot there is nothing to wait for.
        goes = live & (runs.gang < spot) & (~holds & ~ends_here if spot else waits)
        _launch(gangs, runs, goes, safe, start_h)
        runs.changed |= goes & (spot > 0)
        waits &= ~goes
    _launch(gangs, runs, live & waits & some_up, best, start_h)


def _fallback(
    gangs: Gangs, runs: _Runs, score: Array, start_h: Array, left_h: float
) -> tuple[NDArray[np.int64], Array]:
    """Return the cheapest uninterruptible gang in time now, else the least late, and its slack."""
    spot, samples = gangs.interruptible, np.arange(len(runs.gang))
    rest = runs.left + runs.unsaved
    needed_h = rest[:, None] * gangs.work_h.T[:, spot:] + start_h[:, spot:]
    in_time = needed_h <= left_h + 1e-9
    cheapest = np.where(in_time, score[:, spot:], math.inf).argmin(axis=1)
    chosen = np.where(in_time.any(axis=1), cheapest, needed_h.argmin(axis=1))
    return spot + chosen, left_h - needed_h[samples, chosen]


def _launch(
    gangs: Gangs, runs: _Runs, goes: NDArray[np.bool_], gang: NDArray[np.int64], start_h: Array
) -> None:
    samples = np.arange(len(runs.gang))
    runs.gang = np.where(goes, gang, runs.gang)
    runs.starting_h = np.where(goes, start_h[samples, gang], runs.starting_h)
    runs.usd += np.where(goes, gangs.start_usd[gang], 0.0)
    runs.unsaved = np.where(goes, 0.0, runs.unsaved)


def _advance(
    gangs: Gangs,
    runs: _Runs,
    live: NDArray[np.bool_],
    usd: Array,
    at_h: float,
    tick_h: float,
    billed_to_h: float,
) -> None:
    samples = np.arange(len(runs.gang))
    gang = np.maximum(runs.gang, 0)
    works = live & (runs.gang != WAITS)
    work_h = gangs.work_h[gang, samples]
    begin_h = np.minimum(runs.starting_h, tick_h)
    train_h = np.minimum(tick_h - begin_h, runs.left * work_h)
    done = works & (runs.left * work_h - train_h <= 1e-9)
    used_h = begin_h + train_h
    billed_h = np.minimum(np.ceil(used_h / billed_to_h - 1e-9) * billed_to_h, tick_h)
    paid_h = np.where(works, np.where(done, billed_h, tick_h), 0.0)
    busy_h = np.where(works, train_h, 0.0)
    kwh = gangs.busy_kw[gang] * busy_h + gangs.idle_kw[gang] * (paid_h - busy_h)
    runs.usd += usd[samples, gang] * paid_h
    runs.kwh += np.where(works, kwh, 0.0)
    runs.gco2e += np.where(works, kwh * gangs.gco2e_per_kwh[gang], 0.0)
    share = np.where(works, train_h / work_h, 0.0)
    runs.left = runs.left - share
    runs.unsaved = np.where(_are_on_spot(gangs, runs), runs.unsaved + share, 0.0)
    saved = runs.unsaved * work_h >= gangs.interval_h[gang]
    runs.unsaved = np.where(saved, 0.0, runs.unsaved)
    runs.begun |= busy_h > 0
    runs.starting_h = np.where(works, runs.starting_h - begin_h, runs.starting_h)
    runs.finish_h = np.where(done, at_h + used_h, runs.finish_h)
