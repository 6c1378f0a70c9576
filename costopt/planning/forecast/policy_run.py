"""The policy of a job as an array program: many futures at once, tick by tick.

In each future the job is on one gang or waits. At a tick without a gang it takes the cheapest that
has capacity, by the policy's objective of the rest of the job, of those as fast as the gang that it
would fall back to, else the fastest; it keeps a gang until the pool takes it back. Before that the
shield decides, as ``costopt.strategies.shield`` does: where, after a tick that adds nothing, the
rest of the job could not be finished in time on uninterruptible capacity, the job goes there at
once, and stays unless a faster gang there would still be in time after another try. A launch that
would have to be left before its first save is not made.
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
DONE = 1e-9
"""Of a job or hours: what is less is rounding."""

UNFINISHED_H = 9.0
"""A run that is not done at the end of its future is said to take so many times its time."""


@dataclass(slots=True, eq=False)
class _Runs:
    """The runs by sample: ``left`` and ``unsaved`` are shares of the job, ``gang`` is its row.

    It saves every ``interval_h``.
    """

    left: Array
    unsaved: Array
    gang: NDArray[np.int64]
    starting_h: Array
    interval_h: Array
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
    starting_h: float = 0.0,
    unsaved: float = 0.0,
) -> RunSamples:
    """Return what the policy makes of each future; hours count from the first tick.

    Where a gang runs at first, it starts for ``starting_h`` hours more, and has not saved so much
    of what it has done, as a share of the rest. Nodes are paid to the next
    multiple of ``billed_to_h`` hours after the work ends.
    """
    samples, tick_h = gangs.work_h.shape[1], futures.tick_s / 3600
    runs = _Runs(
        left=np.ones(samples),
        unsaved=np.full(samples, unsaved),
        gang=np.full(samples, WAITS if gangs.present is None else gangs.present),
        starting_h=np.full(samples, starting_h),
        interval_h=np.full(samples, gangs.interval_h[gangs.present or 0]),
        begun=np.full(samples, begun),
        finish_h=np.full(samples, math.inf),
        usd=np.zeros(samples),
        kwh=np.zeros(samples),
        gco2e=np.zeros(samples),
        interruptions=np.zeros(samples),
        changed=np.zeros(samples, dtype=bool),
    )
    first = max(0, math.ceil(release_h / tick_h - DONE))
    ticks = futures.nodes.shape[2]
    busy_kw, gco2e_per_kwh = map(np.nan_to_num, (gangs.busy_kw, gangs.gco2e_per_kwh))
    usd = score = np.zeros((samples, len(gangs.offers)))
    for t in range(first, ticks):
        live = ~np.isfinite(runs.finish_h)
        if not live.any():
            break
        if t == first or t < futures.price.shape[2]:
            last = min(t, futures.price.shape[2] - 1)
            usd = _usd_per_hour(gangs, futures.price[:, :, last], samples)
            score = scored(objective, usd, busy_kw, gco2e_per_kwh) * gangs.work_h.T
        pool = gangs.pool[: gangs.interruptible]
        up = futures.nodes[:, pool, t] >= gangs.nodes[: gangs.interruptible]
        _interrupt(gangs, runs, up)
        _decide(gangs, runs, live, up, score, due_h - t * tick_h, tick_h)
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
    ratio[:, : gangs.interruptible] = price[:, gangs.pool[: gangs.interruptible]]
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
    score: Array,
    left_h: float,
    tick_h: float,
) -> None:
    samples, spot = np.arange(len(runs.gang)), gangs.interruptible
    work_h = gangs.work_h.T
    waits, on_spot = runs.gang == WAITS, _are_on_spot(gangs, runs)
    start_h = np.where(runs.begun[:, None], gangs.restart_h, gangs.start_h)
    if len(gangs.offers) == spot:
        pace_h = (left_h - start_h[:, :spot]) / np.maximum(runs.left, DONE)[:, None]
        best, some_up = _cheapest_up(gangs, score, up, pace_h, live & waits)
        _launch(gangs, runs, live & waits & some_up, best, start_h)
        return
    slack_h = left_h - start_h[:, spot:] - (runs.left + runs.unsaved)[:, None] * work_h[:, spot:]
    safe = _fallback(score[:, spot:], slack_h)
    faster = gangs.train_h[spot:] < gangs.train_h[spot + safe][:, None]
    room_h = tick_h + gangs.unsaved_h + start_h[samples, spot + safe]
    roomy = _with_room(score[:, spot:], slack_h, safe, faster, room_h)
    pace_h = gangs.train_h[spot + roomy][:, None]
    best, some_up = _cheapest_up(gangs, score, up, pace_h, live & ~on_spot)
    gang = np.where(on_spot, runs.gang, best)
    rest_h = runs.left * work_h[samples, gang]
    begins_h = np.where(on_spot, runs.starting_h, start_h[samples, gang])
    ends_here = (on_spot | some_up) & (rest_h + begins_h <= min(tick_h, left_h))
    # As the engine chooses it at a launch: work that is not saved is to leave half of the slack.
    interval_h = (slack_h[samples, safe] - start_h[samples, gang]) / 2
    interval_h = np.clip(interval_h, gangs.risky_interval_h[gang], gangs.interval_h[gang])
    first_save_h = start_h[samples, gang] + interval_h + gangs.save_h[gang]
    as_fast_h = np.where(on_spot | some_up, gangs.train_h[gang] * (1 - DONE), math.inf)
    faster &= gangs.train_h[spot:] >= as_fast_h[:, None]
    ways_h = np.where(faster, slack_h, -math.inf).max(axis=1)
    ways_h = np.maximum(ways_h, slack_h[samples, safe])
    saved_in_time = np.maximum(ways_h, slack_h[samples, roomy]) >= first_save_h + tick_h
    holds = (ways_h >= tick_h) & (on_spot | saved_in_time | ~some_up)
    # Without spot there is nothing to wait for.
    goes = live & (runs.gang < spot) & (~holds & ~ends_here if spot else waits)
    here = np.maximum(runs.gang, 0)
    back = runs.left + start_h[samples, best] / work_h[samples, best]
    pays = back * score[samples, best] < runs.left * score[samples, here]
    returns = live & (runs.gang >= spot) & some_up & saved_in_time & pays
    launched = returns | (live & waits & ~goes & some_up)
    _launch(gangs, runs, goes, spot + safe, start_h)
    runs.changed |= goes & (spot > 0)
    _launch(gangs, runs, launched, best, start_h)
    runs.interval_h = np.where(launched, interval_h, runs.interval_h)


def _cheapest_up(
    gangs: Gangs,
    score: Array,
    up: NDArray[np.bool_],
    pace_h: Array,
    choosing: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the cheapest gang with capacity that does the job in ``pace_h``, else the fastest;
    and whether any has capacity. Other runs than the ``choosing`` are left out."""
    best, some_up = np.zeros(len(up), dtype=np.int64), np.zeros(len(up), dtype=bool)
    runs, spot = np.flatnonzero(choosing), gangs.interruptible
    if not spot:
        return best, some_up
    samples = np.arange(len(runs))
    train_h = np.where(up[runs], gangs.train_h[:spot], math.inf)
    usd = np.where(train_h <= pace_h[runs] * (1 + DONE), score[runs, :spot], math.inf)
    cheapest, fastest = usd.argmin(axis=1), train_h.argmin(axis=1)
    keeps_pace = np.isfinite(usd[samples, cheapest])
    best[runs] = np.where(keeps_pace, cheapest, fastest)
    some_up[runs] = np.isfinite(train_h[samples, fastest])
    return best, some_up


def _fallback(score: Array, slack_h: Array) -> NDArray[np.int64]:
    """Return the number, among the uninterruptible gangs, of the cheapest that is in time, else of
    the least late; shape (samples,)."""
    in_time = slack_h >= -DONE
    cheapest = np.where(in_time, score, math.inf).argmin(axis=1)
    chosen: NDArray[np.int64] = np.where(in_time.any(axis=1), cheapest, slack_h.argmax(axis=1))
    return chosen


def _with_room(
    score: Array, slack_h: Array, safe: NDArray[np.int64], faster: NDArray[np.bool_], room_h: Array
) -> NDArray[np.int64]:
    """Return the safe gang, or where it is hardly in time the cheapest faster one that is: slower
    ones come into question while work is done, and spot need not be left for one of them."""
    samples, has_room = np.arange(len(safe)), slack_h >= room_h[:, None]
    found = np.where(faster & has_room, score, math.inf)
    roomy = found.argmin(axis=1)
    stays = has_room[samples, safe] | ~np.isfinite(found[samples, roomy])
    return np.where(stays, safe, roomy)


def _launch(
    gangs: Gangs, runs: _Runs, goes: NDArray[np.bool_], gang: NDArray[np.int64], start_h: Array
) -> None:
    samples = np.arange(len(runs.gang))
    runs.gang = np.where(goes, gang, runs.gang)
    runs.starting_h = np.where(goes, start_h[samples, gang], runs.starting_h)
    runs.interval_h = np.where(goes, gangs.interval_h[gang], runs.interval_h)
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
    done = works & (runs.left * work_h - train_h <= DONE)
    used_h = begin_h + train_h
    billed_h = np.minimum(np.ceil(used_h / billed_to_h - DONE) * billed_to_h, tick_h)
    paid_h = np.where(works, np.where(done, billed_h, tick_h), 0.0)
    busy_h = np.where(works, train_h, 0.0)
    kwh = gangs.busy_kw[gang] * busy_h + gangs.idle_kw[gang] * (paid_h - busy_h)
    runs.usd += usd[samples, gang] * paid_h
    runs.kwh += np.where(works, kwh, 0.0)
    runs.gco2e += np.where(works, kwh * gangs.gco2e_per_kwh[gang], 0.0)
    share = np.where(works, train_h / work_h, 0.0)
    runs.left = runs.left - share
    runs.unsaved = np.where(_are_on_spot(gangs, runs), runs.unsaved + share, 0.0)
    saved = runs.unsaved * work_h >= runs.interval_h
    runs.unsaved = np.where(saved, 0.0, runs.unsaved)
    runs.begun |= busy_h > 0
    runs.starting_h = np.where(works, runs.starting_h - begin_h, runs.starting_h)
    runs.finish_h = np.where(done, at_h + used_h, runs.finish_h)
