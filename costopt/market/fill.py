"""Models the capacity that a record of prices leaves open, so that it can be replayed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType
from costopt.market.generator import DEFAULT_TICK_S, generate_market
from costopt.market.runs import compress_samples


def fill_capacity(
    history: MarketHistory, *, seed: int, profile: str = "typical", tick_s: float = DEFAULT_TICK_S
) -> MarketHistory:
    """``history`` with the generator's capacity where a spot price is known and capacity is not.

    What was observed stays, and so do gaps. The same seed and profile fill a record that has
    grown as they filled it before. The capacity knows nothing of the prices: in a real market a
    price may rise as capacity goes. Raises MarketError where nothing is open.
    """
    open_pools = [pool for pool, recorded in history.pools.items() if any(_open(recorded))]
    if not open_pools:
        raise MarketError(
            f"market {history.name!r} leaves no capacity of spot pools open",
            hint="backtest takes it as it is",
            code="no_capacity",
        )
    begins_at = min(history.pools[pool].starts_at for pool in open_pools)
    ends_at = max(history.pools[pool].ends_at for pool in open_pools)
    drawn = generate_market(
        dict.fromkeys(open_pools, 1.0),
        hours=(ends_at - begins_at).total_seconds() / 3600 + tick_s / 3600,
        seed=seed,
        profile=profile,
        start_at=begins_at,
        tick_s=tick_s,
    )
    filled = {pool: _filled(history.pools[pool], drawn.pools[pool]) for pool in open_pools}
    note = f"capacity modelled: profile {profile}, seed {seed}"
    source = history.source if note in history.source else f"{history.source}; {note}"
    return replace(history, pools={**history.pools, **filled}, tick_s=None, source=source)


def _open(recorded: PoolHistory) -> Iterator[MarketState]:
    if recorded.pool.capacity_type is not CapacityType.SPOT:
        return
    for state in recorded.states:
        if state.nodes_available is None and state.price_usd_per_hour is not None:
            yield state


def _filled(recorded: PoolHistory, drawn: PoolHistory) -> PoolHistory:
    return PoolHistory(recorded.pool, compress_samples(_states(recorded, drawn)), recorded.ends_at)


def _states(recorded: PoolHistory, drawn: PoolHistory) -> Iterator[MarketState]:
    ends = [state.starts_at for state in recorded.states[1:]] + [recorded.ends_at]
    starts = [state.starts_at for state in drawn.states]
    for state, ends_at in zip(recorded.states, ends, strict=True):
        if state.nodes_available is not None or state.price_usd_per_hour is None:
            yield state
            continue
        index = max(bisect_right(starts, state.starts_at) - 1, 0)
        while index < len(starts) and starts[index] < ends_at:
            at = max(starts[index], state.starts_at)
            yield replace(state, starts_at=at, nodes_available=drawn.states[index].nodes_available)
            index += 1
