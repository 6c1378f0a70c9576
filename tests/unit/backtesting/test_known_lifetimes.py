"""The rates of a whole record, by age, and what is done with knowing them."""

from __future__ import annotations

from itertools import accumulate

import pytest

from costopt.backtesting.known_lifetimes import RecordedLifetimes, recorded_law
from costopt.domain.history import PoolHistory
from costopt.market.lifetime import lifetime_key, prior_rates
from tests.support.engine_fixtures import HOUR_S, SPOT_A, SPOT_B
from tests.support.market_fixtures import after, market, pool_history

State = tuple[float, int | None, float | None]


def _record(*periods: tuple[float, int | None]) -> PoolHistory:
    """Nodes for so many hours each."""
    starts = accumulate((hours for hours, _ in periods[:-1]), initial=0.0)
    states: list[State] = [
        (start * HOUR_S, nodes, None if nodes is None else 2.0)
        for start, (_, nodes) in zip(starts, periods, strict=True)
    ]
    return pool_history(SPOT_A, states, sum(hours for hours, _ in periods) * HOUR_S)


def test_a_rate_is_endings_over_hours_at_that_age() -> None:
    """Five hundred periods with capacity end after three hours each, and come back after one."""
    history = _record(*[(3.0, 2), (1.0, 0)] * 500)
    rates, share = recorded_law(history, 1, history.ends_at)
    of_age = rates.class_at(3.0 - 1e-6)
    spent_h = 3.0 - rates.from_h[of_age]
    assert rates.up_per_hour[of_age] == pytest.approx(1 / spent_h, rel=0.02)
    assert rates.up_per_hour[of_age - 1] < 0.01
    assert share == pytest.approx(0.75)


def test_a_gang_sees_only_the_periods_with_room_for_it() -> None:
    history = _record((3.0, 2), (1.0, 1), (4.0, 0), (2.0, 2))
    assert recorded_law(history, 1, history.ends_at)[1] == pytest.approx(0.6)
    assert recorded_law(history, 2, history.ends_at)[1] == pytest.approx(0.5)


def test_a_gap_ends_a_period_unseen() -> None:
    gap = _record(*[(3.0, 1), (2.0, None)] * 50)
    rates, share = recorded_law(gap, 1, gap.ends_at)
    assert share == 1.0
    assert max(rates.up_per_hour) < max(prior_rates().up_per_hour)


def test_rates_are_known_before_anything_is_observed_and_do_not_move() -> None:
    history = _record(*[(3.0, 2), (1.0, 0)] * 500)
    known = RecordedLifetimes(market(history))
    key = lifetime_key("job", SPOT_A, 1)
    before = known.rates(key)
    for hour in range(10):
        known.observe(key, "aws/r", bool(hour % 2), after(hour * HOUR_S))
    assert known.rates(key) == before == recorded_law(history, 1, history.ends_at)[0]
    assert known.age_h(key) == 0.0
    other = lifetime_key("job", SPOT_B, 1)
    assert known.rates(other) == prior_rates()
    assert list(known.scenarios((key, other))) == [(1.0, (before, prior_rates()))]
