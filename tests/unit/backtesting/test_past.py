"""What those that learn know of the market before a job begins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costopt.backtesting.backtest import shift_job
from costopt.backtesting.replay import PriorObservation
from costopt.backtesting.trial import BacktestConfig, Trial, TrialKeys, Window
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import LifetimeModel
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Machines,
    Powers,
    rules,
    task,
)
from tests.support.market_fixtures import after, market, pool_history

START_S = 30 * HOUR_S
JOB = shift_job(task(deadline_s=8 * HOUR_S), after(START_S))
KEY = ("job", str(SPOT_A), 1)


def _hazards() -> LearnedHazard:
    return LearnedHazard(lambda _: DEFAULT_HAZARD)


def _recorded(after_start: int = 1, tick_s: float | None = 600.0) -> MarketHistory:
    """Spot in one zone is up two hours of three until the job begins; a gap in the other zone."""
    states: list[tuple[float, int | None, float | None]] = [
        (h * HOUR_S, int(h % 3 != 2), 2.0) for h in range(30) if h % 3 != 1
    ]
    return market(
        pool_history(SPOT_A, [*states, (START_S, after_start, 2.5)], 60 * HOUR_S),
        pool_history(SPOT_B, [(0, None, None), (START_S, 1, 2.0)], 60 * HOUR_S),
        pool_history(SAFE, [(0, 9, 8.0)], 60 * HOUR_S),
        tick_s=tick_s,
    )


def _reported(
    record: MarketHistory, past_s: float = math.inf, job: Job = JOB
) -> tuple[LifetimeModel, LearnedHazard]:
    lifetimes, hazards = LifetimeModel(), _hazards()
    past = PriorObservation(job, rules("adaptive"), record, Machines(), past_s)
    past.teach(ShieldedStrategy(AdaptiveStrategy(lifetimes=lifetimes)), hazards)
    return lifetimes, hazards


def test_every_tick_before_the_start_has_been_looked_at() -> None:
    lifetimes, hazards = _reported(_recorded())
    by_hand = LifetimeModel()
    for tick in range(round(START_S / 600)):
        up = (tick // 6) % 3 != 2
        by_hand.observe(KEY, "aws/us-east-1", up, after(600.0 * tick))
    assert lifetimes.rates(KEY) == by_hand.rates(KEY) != LifetimeModel().rates(KEY)
    assert lifetimes.age_h(KEY) == by_hand.age_h(KEY)
    reported, unwatched = hazards.hazard_per_hour(SPOT_A), _hazards().hazard_per_hour(SPOT_A)
    assert reported is not None
    assert unwatched is not None
    assert reported.high - reported.low < unwatched.high - unwatched.low


@pytest.mark.parametrize("past_s", [6 * HOUR_S, math.inf])
@pytest.mark.parametrize("tick_s", [600.0, None])
def test_nothing_is_known_of_what_comes(past_s: float, tick_s: float | None) -> None:
    seen = [_reported(_recorded(up, tick_s), past_s) for up in (0, 1)]
    assert seen[0][0] == seen[1][0]
    assert seen[0][1].hazard_per_hour(SPOT_A) == seen[1][1].hazard_per_hour(SPOT_A)


def test_less_of_the_past_is_less_known() -> None:
    shares = [
        _reported(_recorded(), past_s)[0].availability(KEY)
        for past_s in (0.0, 2 * HOUR_S, math.inf)
    ]
    assert len(set(shares)) == 3
    assert shares[0] == LifetimeModel().availability(KEY)


def test_a_gap_teaches_nothing() -> None:
    lifetimes, _ = _reported(_recorded())
    unseen = ("job", str(SPOT_B), 1)
    assert lifetimes.availability(unseen) == LifetimeModel().availability(unseen)


def test_a_run_goes_on_learning_where_the_past_ended() -> None:
    record, lifetimes = _recorded(), LifetimeModel()
    strategy = ShieldedStrategy(AdaptiveStrategy(lifetimes=lifetimes))
    PriorObservation(JOB, rules("adaptive"), record, Machines(), math.inf).teach(
        strategy, _hazards()
    )
    known = {tuple(key) for key, _ in lifetimes.to_json()}
    config = BacktestConfig(
        {record.name: record}, Machines(), _powers, _hazards, trial_strategy=lambda _: strategy
    )
    config.score(Trial(Window(record.name, JOB), rules("adaptive")))
    assert known == {KEY}
    assert {tuple(key) for key, _ in lifetimes.to_json()} - known == {("job", str(SPOT_B), 1)}


def test_pools_that_the_policy_refuses_are_not_looked_at() -> None:
    lifetimes = LifetimeModel()
    uninterruptible = replace(
        rules("adaptive"), limits=Limits(capacity_types=(CapacityType.ON_DEMAND,))
    )
    past = PriorObservation(JOB, uninterruptible, _recorded(), Machines(), math.inf)
    past.teach(AdaptiveStrategy(lifetimes=lifetimes), _hazards())
    assert lifetimes == LifetimeModel()


def _powers() -> Powers:
    return Powers()


def test_a_trial_with_the_past_is_another_trial() -> None:
    record = _recorded()
    cold = BacktestConfig({record.name: record}, Machines(), _powers, _hazards)
    warm = replace(cold, history_s=math.inf)
    trial = Trial(Window(record.name, JOB), rules("adaptive"))
    assert TrialKeys(cold, "").of(trial) != TrialKeys(warm, "").of(trial)
    assert warm.score(trial) == warm.score(trial)
    first, knowing = (config.rehearse(trial, explain=True).events for config in (cold, warm))
    assert first != knowing
    assert warm.score(trial).on_time is True
    greedy = Trial(trial.window, rules("greedy_spot"))
    assert warm.score(greedy) == cold.score(greedy)
