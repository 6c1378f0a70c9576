"""Forecasts in replays: nothing of the future is looked at, and plans count with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import pytest

from costopt.backtesting.replay import ReplayResult, replay
from costopt.controller.forecasts import RecordedForecasts
from costopt.domain.estimate import Series
from costopt.domain.history import MarketHistory, PoolHistory
from costopt.domain.market import Pool, Region
from costopt.domain.policy import CarbonSignal
from costopt.domain.view import Desired, View
from costopt.energy.carbon import CarbonHistory, RecordedCarbon
from costopt.strategies.baselines import GreedySpotStrategy
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Machines,
    Powers,
    SomeHazard,
    changing,
    rules,
    task,
)
from tests.support.market_fixtures import T0, market, pool_history

DAYS = 20
NOW = T0 + timedelta(days=16)
UNTIL = NOW + timedelta(days=2)


def _usd(hour: int) -> float:
    """Goes on for days as it did, then turns."""
    return 10 * math.exp(0.3 * math.sin(2 * math.pi * hour / 240))


def _waves(hours: int = DAYS * 24, jump: tuple[float, float | None] | None = None) -> MarketHistory:
    """``jump``: from this hour on the price is this."""
    states = [(hour * HOUR_S, 1, _usd(hour)) for hour in range(hours)]
    if jump is not None:
        at_hour, usd = jump
        states = [state for state in states if state[0] < at_hour * HOUR_S]
        return market(pool_history(SPOT_A, [*states, (at_hour * HOUR_S, 1, usd)], hours * HOUR_S))
    return market(pool_history(SPOT_A, states, hours * HOUR_S))


def _prices(forecasts: RecordedForecasts, now: datetime) -> Mapping[Pool, Series]:
    return forecasts.prices([SPOT_A], now, UNTIL)


def test_what_is_forecast_does_not_depend_on_the_future() -> None:
    whole, cut = RecordedForecasts(_waves()), RecordedForecasts(_waves(16 * 24 + 1))
    for minutes in (0, 30, 59):
        now = NOW + timedelta(minutes=minutes)
        found = _prices(whole, now)
        assert found
        assert found == _prices(cut, now)


def test_within_the_hour_a_forecast_follows_the_present_price() -> None:
    forecasts = RecordedForecasts(_waves(jump=(16 * 24 + 0.5, 20.0)))
    before = _prices(forecasts, NOW)[SPOT_A]
    after = _prices(forecasts, NOW + timedelta(minutes=30))[SPOT_A]
    assert before.value(NOW) == pytest.approx(_usd(16 * 24))
    assert after.value(NOW + timedelta(minutes=30)) == pytest.approx(20.0)
    later = UNTIL - timedelta(hours=1)
    assert after.value(later) / 20.0 == pytest.approx(before.value(later) / before.value(NOW))


def test_the_drift_is_learned_reset_after_an_hour() -> None:
    forecasts = RecordedForecasts(_waves())
    first = _prices(forecasts, NOW)[SPOT_A]
    assert _prices(forecasts, NOW + timedelta(minutes=59))[SPOT_A].at == first.at
    later = _prices(forecasts, NOW + timedelta(minutes=60))[SPOT_A]
    assert later.at[0] == NOW + timedelta(minutes=60)


def test_a_pool_whose_price_became_unknown_has_no_forecast() -> None:
    forecasts = RecordedForecasts(_waves(jump=(16 * 24 + 0.5, None)))
    assert _prices(forecasts, NOW)
    assert not _prices(forecasts, NOW + timedelta(minutes=30))


def _region(provider: str, name: str) -> Region | None:
    known = (provider, name) == ("aws", "eu-central-1")
    return Region(provider, name, 1.1, 300.0, 700.0, "DE", 2024, "made up") if known else None


def _carbon(hours: int) -> CarbonHistory:
    daily = tuple(300 + 100 * math.sin(2 * math.pi * hour / 24) for hour in range(hours))
    return CarbonHistory(T0, {"DE": daily}, CarbonSignal.AVERAGE, "made up")


def test_carbon_is_forecast_where_the_region_is_known() -> None:
    asked = {"aws/eu-central-1", "aws/nowhere"}
    whole = RecordedForecasts(None, RecordedCarbon(_carbon(DAYS * 24), _region))
    cut = RecordedForecasts(None, RecordedCarbon(_carbon(16 * 24), _region))
    found = whole.carbon(asked, NOW, UNTIL, AVERAGE)
    assert set(found) == {"aws/eu-central-1"}
    assert found == cut.carbon(asked, NOW, UNTIL, AVERAGE)
    hour_on = NOW + timedelta(hours=1)
    assert whole.carbon(asked, hour_on, UNTIL, AVERAGE)["aws/eu-central-1"].at[0] == hour_on
    assert not whole.prices([SPOT_A], NOW, UNTIL)


def test_intensities_of_the_other_kind_do_not_count() -> None:
    recorded = RecordedCarbon(_carbon(DAYS * 24), _region)
    asked = {"aws/eu-central-1"}
    assert not RecordedForecasts(None, recorded).carbon(asked, NOW, UNTIL, CarbonSignal.MARGINAL)
    assert RecordedForecasts(None, recorded).carbon(asked, NOW, UNTIL, AVERAGE)
    assert not RecordedForecasts(None).carbon(asked, NOW, UNTIL, AVERAGE)


def test_an_hour_s_intensity_is_that_of_its_zone_and_signal() -> None:
    recorded = RecordedCarbon(_carbon(48), _region)
    six = recorded.intensity("aws/eu-central-1", T0 + timedelta(hours=6), AVERAGE)
    assert six is not None
    assert six.value == pytest.approx(400)
    assert recorded.intensity("aws/eu-central-1", T0, CarbonSignal.MARGINAL) is None
    assert recorded.intensity("aws/nowhere", T0, AVERAGE) is None
    assert recorded.intensity("aws/eu-central-1", T0 + timedelta(hours=48), AVERAGE) is None


AVERAGE = CarbonSignal.AVERAGE


class GivenForecasts:
    """Forecasts the record itself: what an oracle would tell."""

    def __init__(self, *histories: PoolHistory) -> None:
        self.series = {
            each.pool: Series(
                tuple(state.starts_at for state in each.states),
                tuple(state.price_usd_per_hour or 0.0 for state in each.states),
                "told",
            )
            for each in histories
        }

    def prices(
        self, pools: Collection[Pool], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        return {pool: self.series[pool] for pool in pools if pool in self.series}

    def carbon(
        self,
        regions: Collection[str],
        now: datetime,
        until: datetime,
        carbon_signal: CarbonSignal,
    ) -> Mapping[str, Series]:
        return {region: Series((now,), (77.0,), "told") for region in regions}


class Watching(GreedySpotStrategy):
    """Keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[View] = []

    def decide(self, view: View) -> Desired:
        self.views.append(view)
        return super().decide(view)


FALLING = changing(SAFE, (0, 4, 8.0), (6 * HOUR_S, 4, 2.0))


def _rehearse(forecasts: GivenForecasts | None, strategy: Watching | None = None) -> ReplayResult:
    return replay(
        task(2 * HOUR_S, 20 * HOUR_S),
        rules("milp"),
        market(FALLING),
        machines=Machines(),
        powers=Powers(),
        hazards=SomeHazard(),
        strategy=strategy,
        forecasts=forecasts,
    )


def test_every_strategy_sees_the_forecasts() -> None:
    watching = Watching()
    _rehearse(GivenForecasts(FALLING), watching)
    seen = watching.views[0]
    assert seen.price_forecasts[SAFE].values == (8.0, 2.0)
    assert seen.carbon_forecasts["aws/us-east-1"].values == (77.0,)
    blind = Watching()
    _rehearse(None, blind)
    assert not blind.views[0].price_forecasts
    assert not blind.views[0].carbon_forecasts


def test_the_baseline_emits_by_what_is_forecast() -> None:
    reported = _rehearse(GivenForecasts(FALLING)).summary
    assert reported.baseline_wh is not None
    assert reported.baseline_gco2e == pytest.approx(77 * reported.baseline_wh / 1000)


def test_a_plan_waits_for_a_price_that_is_forecast_to_fall() -> None:
    reported, blind = _rehearse(GivenForecasts(FALLING)).summary, _rehearse(None).summary
    assert reported.on_time
    assert blind.on_time
    assert reported.usd < 0.3 * blind.usd
