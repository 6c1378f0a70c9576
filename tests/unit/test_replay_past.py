"""What those that learn know of the market before a job begins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import Lifetimes
from costopt.replay.backtest import shift
from costopt.replay.past import Past
from costopt.replay.trial import Bench, Keys, Trial, Window
from costopt.session.hazards import UNKNOWN
from costopt.strategies.adaptive import Adaptive
from costopt.strategies.shield import Shielded
from tests.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, Machines, Powers, rules, task
from tests.market_fixtures import after, market, pool_history

START_S = 30 * HOUR_S
JOB = shift(task(deadline_s=8 * HOUR_S), after(START_S))
KEY = ("job", str(SPOT_A), 1)


def _hazards() -> LearnedHazard:
    return LearnedHazard(lambda _: UNKNOWN)


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


def _told(
    record: MarketHistory, past_s: float = math.inf, job: Job = JOB
) -> tuple[Lifetimes, LearnedHazard]:
    lifetimes, hazards = Lifetimes(), _hazards()
    past = Past(job, rules("adaptive"), record, Machines(), past_s)
    past.tell(Shielded(Adaptive(lifetimes=lifetimes)), hazards)
    return lifetimes, hazards


def test_every_tick_before_the_start_has_been_looked_at() -> None:
    lifetimes, hazards = _told(_recorded())
    by_hand = Lifetimes()
    for tick in range(round(START_S / 600)):
        up = (tick // 6) % 3 != 2
        by_hand.look(KEY, "aws/us-east-1", up, after(600.0 * tick))
    assert lifetimes.rates(KEY) == by_hand.rates(KEY) != Lifetimes().rates(KEY)
    assert lifetimes.age_h(KEY) == by_hand.age_h(KEY)
    told, unwatched = hazards.hazard_per_hour(SPOT_A), _hazards().hazard_per_hour(SPOT_A)
    assert told is not None
    assert unwatched is not None
    assert told.high - told.low < unwatched.high - unwatched.low


@pytest.mark.parametrize("past_s", [6 * HOUR_S, math.inf])
@pytest.mark.parametrize("tick_s", [600.0, None])
def test_nothing_is_known_of_what_comes(past_s: float, tick_s: float | None) -> None:
    seen = [_told(_recorded(up, tick_s), past_s) for up in (0, 1)]
    assert seen[0][0] == seen[1][0]
    assert seen[0][1].hazard_per_hour(SPOT_A) == seen[1][1].hazard_per_hour(SPOT_A)


def test_less_of_the_past_is_less_known() -> None:
    shares = [_told(_recorded(), past_s)[0].share(KEY) for past_s in (0.0, 2 * HOUR_S, math.inf)]
    assert len(set(shares)) == 3
    assert shares[0] == Lifetimes().share(KEY)


def test_a_gap_teaches_nothing() -> None:
    lifetimes, _ = _told(_recorded())
    unseen = ("job", str(SPOT_B), 1)
    assert lifetimes.share(unseen) == Lifetimes().share(unseen)


def test_a_run_goes_on_learning_where_the_past_ended() -> None:
    record, lifetimes = _recorded(), Lifetimes()
    strategy = Shielded(Adaptive(lifetimes=lifetimes))
    Past(JOB, rules("adaptive"), record, Machines(), math.inf).tell(strategy, _hazards())
    known = {tuple(key) for key, _ in lifetimes.plain()}
    bench = Bench(
        {record.name: record}, Machines(), _powers, _hazards, strategies=lambda _: strategy
    )
    bench.score(Trial(Window(record.name, JOB), rules("adaptive")))
    assert known == {KEY}
    assert {tuple(key) for key, _ in lifetimes.plain()} - known == {("job", str(SPOT_B), 1)}


def test_pools_that_the_policy_refuses_are_not_looked_at() -> None:
    lifetimes = Lifetimes()
    firm = replace(rules("adaptive"), limits=Limits(capacity_types=(CapacityType.ON_DEMAND,)))
    past = Past(JOB, firm, _recorded(), Machines(), math.inf)
    past.tell(Adaptive(lifetimes=lifetimes), _hazards())
    assert lifetimes == Lifetimes()


def _powers() -> Powers:
    return Powers()


def test_a_trial_with_the_past_is_another_trial() -> None:
    record = _recorded()
    cold = Bench({record.name: record}, Machines(), _powers, _hazards)
    warm = replace(cold, past_s=math.inf)
    trial = Trial(Window(record.name, JOB), rules("adaptive"))
    assert Keys(cold, "").of(trial) != Keys(warm, "").of(trial)
    assert warm.score(trial) == warm.score(trial)
    first, knowing = (bench.rehearse(trial, explain=True).events for bench in (cold, warm))
    assert first != knowing
    assert warm.score(trial).on_time is True
    greedy = Trial(trial.window, rules("greedy_spot"))
    assert warm.score(greedy) == cold.score(greedy)
