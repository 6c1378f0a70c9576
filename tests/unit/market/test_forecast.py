"""Price forecasts rest on what was known, and only where the drift has proven to go on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.estimate import Series
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.forecast import forecast_prices
from costopt.market.history_file import compress_samples

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 20
NOW = START + timedelta(days=16)
HORIZON = NOW + timedelta(hours=72)
SPOT = Pool("aws", "r", "ra", "big", CapacityType.SPOT)

Price = Callable[[float], float | None]


def waves(hour: float) -> float:
    """Goes on for days as it did, then turns."""
    return 10 * math.exp(0.3 * math.sin(2 * math.pi * hour / 240))


def random_walk(seed: int) -> Price:
    """Steps from which nothing follows."""
    rng = random.Random(seed)
    logs = [0.0]
    for _ in range(DAYS * 24):
        logs.append(logs[-1] + rng.gauss(0, 0.02))
    return lambda hour: 10 * math.exp(logs[int(hour)])


def market(price: Price, pool: Pool = SPOT, until: datetime | None = None) -> MarketHistory:
    ends_at = until or START + timedelta(days=DAYS)
    hours = int((ends_at - START) / timedelta(hours=1))
    states = compress_samples(
        MarketState(START + timedelta(hours=hour), 1, price(hour)) for hour in range(hours)
    )
    return MarketHistory("m", {pool: PoolHistory(pool, states, ends_at)}, None, "made up")


def forecast(history: MarketHistory, pool: Pool = SPOT) -> Series | None:
    return forecast_prices(history, [pool], NOW, HORIZON).get(pool)


def test_a_drift_that_goes_on_is_forecast_and_beats_persistence() -> None:
    series = forecast(market(waves))
    assert series is not None
    present = waves(16 * 24)
    assert series.value(NOW) == pytest.approx(present)
    for hours in (6, 24):
        came = waves(16 * 24 + hours)
        off = abs(series.value(NOW + timedelta(hours=hours)) - came)
        assert off < 0.7 * abs(present - came)


def test_prices_of_the_future_change_nothing() -> None:
    def other_future(hour: float) -> float:
        return waves(hour) if hour <= 16 * 24 else 99.0

    assert forecast(market(other_future)) == forecast(market(waves))


def test_a_record_that_ends_after_now_is_enough() -> None:
    assert forecast(market(waves, until=NOW + timedelta(hours=1))) == forecast(market(waves))


def test_prices_that_turn_back_are_forecast_to_turn_back() -> None:
    series = forecast(market(lambda hour: 10 + math.cos(2 * math.pi * hour / 24)))
    assert series is not None
    assert series.value(NOW) == pytest.approx(11)
    assert series.value(NOW + timedelta(hours=6)) == pytest.approx(10, abs=0.4)


def test_prices_without_a_pattern_are_left_near_persistence() -> None:
    off_series, off_present = [], []
    for seed in range(20):
        price = random_walk(seed)
        series = forecast(market(price))
        present, came = price(16 * 24), price(17 * 24)
        assert present is not None
        assert came is not None
        off_present.append(abs(present - came))
        value = series.value(NOW + timedelta(days=1)) if series else present
        off_series.append(abs(value - came))
    assert sum(off_series) < 1.1 * sum(off_present)


def test_a_constant_price_needs_no_series() -> None:
    assert forecast(market(lambda _: 3.0)) is None


def test_an_unknown_present_price_is_not_forecast() -> None:
    assert forecast(market(lambda hour: waves(hour) if hour < 16 * 24 - 2 else None)) is None


def test_a_record_that_has_ended_is_not_forecast() -> None:
    assert forecast(market(waves, until=NOW - timedelta(hours=1))) is None


def test_too_short_a_past_is_not_forecast() -> None:
    history = market(waves)
    soon = START + timedelta(hours=60)
    assert forecast_prices(history, [SPOT], soon, soon + timedelta(hours=24)) == {}


def test_gaps_in_the_past_are_passed_over() -> None:
    series = forecast(market(lambda hour: None if 200 <= hour < 220 else waves(hour)))
    assert series is not None
    assert all(math.isfinite(value) and value > 0 for value in series.values)


def test_on_demand_and_unrecorded_pools_are_left_out() -> None:
    on_demand = SPOT.with_capacity_type(CapacityType.ON_DEMAND)
    assert forecast(market(waves, on_demand), on_demand) is None
    assert forecast(market(waves), on_demand) is None
