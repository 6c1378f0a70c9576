"""A recorded market at an account's prices, for the optimum in hindsight, which runs no engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Pool
from costopt.domain.price_terms import ROUNDING, PriceTerms


def account_market(market: MarketHistory, terms: PriceTerms) -> MarketHistory:
    """Return the market at the account's prices, with a pool for what each commitment covers.

    Each of these pools has the whole commitment, which several pools may share.
    """
    if not terms.change_prices:
        return market
    pools: dict[Pool, PoolHistory] = {
        pool: replace(history, states=tuple(_states(history, pool, terms)))
        for pool, history in market.pools.items()
    }
    return replace(market, pools={**pools, **dict(_committed(market.pools, terms))})


def _committed(
    pools: Mapping[Pool, PoolHistory], terms: PriceTerms
) -> Iterator[tuple[Pool, PoolHistory]]:
    for commitment in terms.commitments:
        for pool, history in pools.items():
            load = commitment.load(pool)
            if load > 0 and commitment.pools.matches(pool):
                own = pool.committed_to(commitment.name)
                most = math.floor(commitment.quantity / load + ROUNDING)
                states = tuple(_states(history, own, terms, most))
                yield own, PoolHistory(own, states, history.ends_at)


def _states(
    history: PoolHistory, pool: Pool, terms: PriceTerms, most: int | None = None
) -> Iterator[MarketState]:
    """Yield the states of ``pool``, split where the account's terms change."""
    edges = [at for at in terms.changes_at(pool) if history.starts_at < at < history.ends_at]
    last: MarketState | None = None
    for at in sorted({*(state.starts_at for state in history.states), *edges}):
        state = _state(history, pool, terms, at, most)
        if last is None or state != replace(last, starts_at=at):
            yield state
            last = state


def _state(
    history: PoolHistory, pool: Pool, terms: PriceTerms, at: datetime, most: int | None
) -> MarketState:
    recorded = history.at(at)
    assert recorded is not None
    price, nodes = terms.price(pool, recorded.price_usd_per_hour, at), recorded.nodes_available
    if most is not None:
        nodes = most if nodes is None else min(most, nodes)
    return MarketState(at, nodes, None if price is None else price.usd_per_hour)
