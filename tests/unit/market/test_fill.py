"""Modelled capacity goes only where a price is known and capacity is not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.market.generator import fill_capacity
from tests.support.errors import has_code
from tests.support.market_fixtures import (
    ELSEWHERE,
    ON_DEMAND,
    SPOT,
    T0,
    after,
    market,
    pool_history,
)

DAY_S = 86400


def prices(days: int = 30) -> MarketHistory:
    return market(
        pool_history(SPOT, [(0, None, 1.0), (3 * DAY_S, None, 1.2)], days * DAY_S),
        pool_history(ELSEWHERE, [(0, None, None), (DAY_S, 5, 2.0)], days * DAY_S),
        pool_history(ON_DEMAND, [(0, 9, 3.0)], days * DAY_S),
    )


def spot(history: MarketHistory) -> PoolHistory:
    return history.pools[SPOT]


def test_open_capacity_is_drawn_and_prices_stay() -> None:
    recorded = prices()
    filled = fill_capacity(recorded, seed=1)
    states = spot(filled).states
    assert all(state.nodes_available is not None for state in states)
    assert 0 in {state.nodes_available for state in states}
    assert any(state.nodes_available for state in states)
    for hour in range(30 * 24):
        seen, before = spot(filled).at(after(hour * 3600)), spot(recorded).at(after(hour * 3600))
        assert seen is not None
        assert before is not None
        assert seen.price_usd_per_hour == before.price_usd_per_hour
    assert spot(filled).ends_at == spot(recorded).ends_at
    assert filled.source.endswith("capacity modelled: profile typical, seed 1")


def test_what_was_observed_and_gaps_stay() -> None:
    recorded, filled = prices(), fill_capacity(prices(), seed=1)
    assert filled.pools[ELSEWHERE] == recorded.pools[ELSEWHERE]
    assert filled.pools[ON_DEMAND] == recorded.pools[ON_DEMAND]


def test_the_seed_decides() -> None:
    assert fill_capacity(prices(), seed=1) == fill_capacity(prices(), seed=1)
    assert spot(fill_capacity(prices(), seed=1)) != spot(fill_capacity(prices(), seed=2))


def test_a_record_that_has_grown_is_filled_as_before() -> None:
    short, long = fill_capacity(prices(10), seed=1), fill_capacity(prices(30), seed=1)
    for hour in range(10 * 24):
        assert spot(short).at(T0 + timedelta(hours=hour)) == spot(long).at(
            T0 + timedelta(hours=hour)
        )


def test_where_nothing_is_open_it_says_so() -> None:
    filled = fill_capacity(prices(), seed=1)
    with pytest.raises(MarketError, check=has_code("no_capacity")):
        fill_capacity(filled, seed=1)
