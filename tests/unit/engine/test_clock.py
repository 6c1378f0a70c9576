"""Clocks: one that stands, one that runs faster."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from costopt.engine.loop import ScaledClock, VirtualClock, WallClock
from tests.support.market_fixtures import T0


def test_the_virtual_clock_moves_only_in_sleep() -> None:
    clock = VirtualClock(T0)
    assert clock.now() == clock.now() == T0
    clock.sleep(90.5)
    assert clock.now() == T0 + timedelta(seconds=90.5)
    clock.sleep(-5)
    assert clock.now() == T0 + timedelta(seconds=90.5)


def test_the_scaled_clock_runs_so_many_times_as_fast() -> None:
    before_s = time.monotonic()
    clock = ScaledClock(T0, 10_000.0)
    begun_s = time.monotonic()
    clock.sleep(100.0)
    slept_s = time.monotonic() - begun_s
    market_s = (clock.now() - T0).total_seconds()
    assert slept_s >= 0.01
    assert 10_000 * slept_s <= market_s <= 10_000 * (time.monotonic() - before_s)


def test_the_scaled_clock_goes_on_from_where_it_was() -> None:
    before_s = time.monotonic()
    clock = ScaledClock(T0, 60.0, elapsed_s=120.0)
    market_s = (clock.now() - T0).total_seconds()
    assert 7200 <= market_s <= 7200 + 60 * (time.monotonic() - before_s)


@pytest.mark.parametrize("speed", [0.0, -1.0])
def test_time_does_not_stand_still_or_go_back(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        ScaledClock(T0, speed)


def test_no_clock_sleeps_a_negative_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    WallClock().sleep(-10)
    ScaledClock(T0, 2.0).sleep(-10)
    assert slept_s == [0.0, 0.0]


def test_the_wall_clock_is_aware_utc() -> None:
    before = datetime.now(UTC)
    now = WallClock().now()
    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)
