"""Sampled futures of pools: capacity and prices, all pools together, from what is known by now.

They are windows of the record before now, those first whose pools were up and down as they are at
present: this keeps how the pools of a market come and go together. Where too little is recorded,
each pool comes and goes by what the lifetime model of the default strategy makes of the record so
far, from the shipped prior where there is none, and prices stay. Nothing after now is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.history import MarketHistory, MarketState
from costopt.domain.market import Offer, Pool
from costopt.domain.transfers import region_key
from costopt.market.lifetime import PRIOR_SHARE, LifetimeModel, lifetime_key
from costopt.optimize.rates import Array

SEED = 20261128
MAX_TICKS = 600
"""More would take time and change nothing: a tick is then some ticks of the record."""

UNRECORDED_TICK_S = 300.0
NEAREST_SHARE = 0.1
"""Share of the record's windows, those whose beginnings are most like the present, to draw from."""

PRICE_WEIGHT = 4
"""A pool's state counts by this power of the lowest price over its own."""

MIN_WINDOWS = 3.0
"""How many times as long as a future the record must be to draw from it."""

ANY_NODES = 2**15 - 1

Nodes = NDArray[np.int16]
Key = tuple[str, str, int]
"""What ``lifetime_key`` returns."""

Learned = Callable[[Sequence[Key], datetime], LifetimeModel | None]
"""What a daemon has learned by an instant of pools and numbers of nodes, None if nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Futures:
    """``nodes`` that each pool can carry, and its ``price`` over the present one.

    Both have shape (futures, pools, ticks). ``source`` says what they were drawn from.
    """

    pools: tuple[Pool, ...]
    nodes: Nodes
    price: Array
    tick_s: float
    source: str


def draw_futures(
    offers: Sequence[Offer],
    nodes: Sequence[int],
    history: MarketHistory | None,
    now: datetime,
    span_s: float,
    samples: int,
    learned: Learned | None = None,
) -> Futures:
    """Return what the offers' pools may do in ``span_s`` seconds; a job needs ``nodes`` in each.

    ``history`` is the record that the offers are of, None where nothing was recorded; ``learned``
    counts where it is too short.
    """
    recorded_s = UNRECORDED_TICK_S if history is None else history.tick_s or UNRECORDED_TICK_S
    tick_s = recorded_s * max(1, math.ceil(span_s / recorded_s / MAX_TICKS))
    ticks = max(1, math.ceil(span_s / tick_s))
    pools = tuple(offer.pool for offer in offers)
    past = None
    if history is not None and pools and history.pools.keys() >= set(pools):
        past = _past(history, pools, now, tick_s)
    rng = np.random.default_rng(SEED)
    if past is not None and past.ticks >= MIN_WINDOWS * ticks + samples:
        return _windows(past, pools, np.array(nodes), ticks, samples, rng)
    keys = [lifetime_key("", pool, count) for pool, count in zip(pools, nodes, strict=True)]
    up_now = [_is_up(offer, count) for offer, count in zip(offers, nodes, strict=True)]
    why = "price lists do not say" if history is None else "nothing was recorded before"
    model, source = LifetimeModel(), f"the shipped prior of how long capacity lasts, as {why}"
    taught = None if learned is None else learned(keys, now)
    if taught is not None:
        model, source = taught, "what was learned so far of how long capacity lasts"
        up_now = [
            up if offer.nodes_available is not None else _was_up(model, key, now)
            for up, offer, key in zip(up_now, offers, keys, strict=True)
        ]
    elif past is not None and past.ticks > 0:
        _watch(model, past, pools, keys, now)
        source = "what was recorded by then of how long capacity lasts"
    drawn = _from_model(model, keys, up_now, ticks, tick_s / 3600, samples, rng)
    return Futures(pools, drawn, np.ones((1, len(pools), 1)), tick_s, source)


def _is_up(offer: Offer, nodes: int) -> float:
    """Return the probability that the pool has capacity now."""
    if offer.nodes_available is None:
        return PRIOR_SHARE
    return float(offer.nodes_available >= nodes)


def _was_up(model: LifetimeModel, key: Key, now: datetime) -> float:
    """Return the probability that a pool has capacity whose provider does not say."""
    seen = model.is_up(key, now)
    return model.availability(key) if seen is None else float(seen)


@dataclass(frozen=True, slots=True, eq=False)
class _Past:
    """Nodes and dollars by pool and tick, up to now; shape (pools, ticks + 1), the last is now."""

    nodes: Nodes
    usd: Array
    tick_s: float
    name: str

    @property
    def ticks(self) -> int:
        return int(self.nodes.shape[1]) - 1


def _past(history: MarketHistory, pools: Sequence[Pool], now: datetime, tick_s: float) -> _Past:
    now = min(now, history.ends_at)
    ticks = max(0, int((now - history.starts_at).total_seconds() / tick_s))
    begin = now - timedelta(seconds=ticks * tick_s)
    nodes = np.zeros((len(pools), ticks + 1), dtype=np.int16)
    usd = np.full((len(pools), ticks + 1), math.nan)
    for row, pool in enumerate(pools):
        recorded = history.pools[pool]
        known = [s for s in (recorded.at(begin),) if s is not None]
        known += recorded.between(begin, now)
        starts = [_tick_of(state, begin, tick_s) for state in known]
        for state, a, b in zip(known, starts, [*starts[1:], ticks + 1], strict=True):
            nodes[row, a:b] = min(state.nodes_available or 0, ANY_NODES)
            usd[row, a:b] = math.nan if (price := state.price_usd_per_hour) is None else price
    return _Past(nodes, usd, tick_s, history.name)


def _tick_of(state: MarketState, begin: datetime, tick_s: float) -> int:
    """The first tick at which the state can be seen."""
    after_s = (state.starts_at - begin).total_seconds()
    return max(0, math.ceil(after_s / tick_s - 1e-6))


def _windows(
    past: _Past,
    pools: tuple[Pool, ...],
    needed: NDArray[np.int64],
    ticks: int,
    samples: int,
    rng: np.random.Generator,
) -> Futures:
    last = past.ticks - ticks
    up = past.nodes >= needed[:, None]
    price = np.where(np.isnan(past.usd[:, -1]), math.inf, past.usd[:, -1])
    weight = (price.min() / price) ** PRICE_WEIGHT if np.isfinite(price.min()) else price * 0
    differs = (weight[:, None] * (up[:, :last] != up[:, -1:])).sum(axis=0)
    order = np.argsort(differs + rng.uniform(0, 1e-6, last))
    nearest = order[: max(samples, int(NEAREST_SHARE * last))]
    starts = rng.choice(nearest, size=samples, replace=len(nearest) < samples)
    index = starts[:, None] + np.arange(ticks)[None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = past.usd[:, index] / past.usd[:, starts][:, :, None]
    ratio = np.where(np.isfinite(ratio), ratio, 1.0).transpose(1, 0, 2)
    nodes = past.nodes[:, index].transpose(1, 0, 2)
    return Futures(pools, nodes, ratio, past.tick_s, f"past windows of {past.name}")


def _watch(
    model: LifetimeModel, past: _Past, pools: Sequence[Pool], keys: Sequence[Key], now: datetime
) -> None:
    """Have the model see the record up to now, as a run that watched it would have."""
    tick = timedelta(seconds=past.tick_s)
    regions = [region_key(pool) for pool in pools]
    up = past.nodes >= np.array([nodes for *_, nodes in keys])[:, None]
    seen = ~np.isnan(past.usd)
    for t in range(past.ticks + 1):
        at = now - (past.ticks - t) * tick
        for row, key in enumerate(keys):
            if seen[row, t]:
                model.observe(key, regions[row], bool(up[row, t]), at)


def _from_model(
    model: LifetimeModel,
    keys: Sequence[Key],
    up_now: Sequence[float],
    ticks: int,
    tick_h: float,
    samples: int,
    rng: np.random.Generator,
) -> Nodes:
    drawn = np.zeros((samples, len(keys), ticks), dtype=np.int16)
    if not keys:
        return drawn
    scenarios = list(model.scenarios(keys))
    chosen = rng.choice(len(scenarios), size=samples, p=[weight for weight, _ in scenarios])
    per_hour = [[(r.down_per_hour, r.up_per_hour) for r in rates] for _, rates in scenarios]
    ends = -np.expm1(-np.array(per_hour) * tick_h)
    from_h, pools = scenarios[0][1][0].from_h, np.arange(len(keys))
    up = rng.random((samples, len(keys))) < np.array(up_now)
    age_h = np.tile([model.age_h(key) for key in keys], (samples, 1))
    for t in range(ticks):
        drawn[:, :, t] = np.where(up, ANY_NODES, 0)
        of_age = np.searchsorted(from_h, age_h + 1e-9, side="right") - 1
        change = rng.random(up.shape) < ends[chosen[:, None], pools, up.astype(int), of_age]
        age_h, up = np.where(change, 0.0, age_h + tick_h), up ^ change
    return drawn
