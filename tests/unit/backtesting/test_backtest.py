"""Windows, baselines and the order of outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from costopt.backtesting.backtest import (
    BASELINES,
    OPTIMUM,
    backtest,
    hindsight_policy,
    oracle_policies,
    record_coverage,
    shift_job,
    window_starts,
    windows,
    with_baselines,
)
from costopt.backtesting.executors import run_in_processes
from costopt.backtesting.replay import DEFAULT_TICK_S
from costopt.backtesting.trial import BacktestConfig, Score, Trial, Window
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits, Objective, Policy
from costopt.spec import load_policy
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.support.errors import has_code
from tests.support.market_fixtures import T0, after, market, pool_history


def recorded(hours: float = 40, tick_s: float | None = 600.0) -> MarketHistory:
    states: list[tuple[float, int | None, float | None]] = [
        (h * HOUR_S, int(h % 3 != 2), 2.0) for h in range(int(hours))
    ]
    changes = [s for i, s in enumerate(states) if i == 0 or s[1] != states[i - 1][1]]
    return market(
        pool_history(SPOT_A, changes, hours * HOUR_S),
        pool_history(SAFE, [(0, 9, 8.0)], hours * HOUR_S),
        tick_s=tick_s,
    )


JOB = task(deadline_s=8 * HOUR_S)
STARTUP_S = (JOB.startup_s,)


def _starts(job: Job, record: MarketHistory, count: int) -> tuple[datetime, ...]:
    span = job.until_at - job.start_at
    return window_starts(job, record, count, record_coverage(record, record.pools, span))


def _powers() -> Powers:
    return Powers()


def config_on(record: MarketHistory) -> BacktestConfig:
    return BacktestConfig({record.name: record}, Machines(), _powers, NoHazard)


def every_trial(record: MarketHistory, count: int) -> list[Trial]:
    first = rules("on_demand")
    policies = (*with_baselines((), first), *oracle_policies(first), hindsight_policy(first))
    starts = _starts(JOB, record, count)
    return [
        Trial(window, policy)
        for window in windows(JOB, record.name, starts, STARTUP_S)
        for policy in policies
    ]


@pytest.mark.parametrize("starts", [1, 2, 7, 50])
def test_windows_lie_on_the_grid_within_the_record(starts: int) -> None:
    record = recorded()
    times = _starts(JOB, record, starts)
    assert len(times) == starts
    assert times[0] == T0
    assert list(times) == sorted(set(times))
    for time in times:
        assert (time - T0) % timedelta(seconds=600) == timedelta(0)
        assert time + timedelta(hours=8) <= record.ends_at
    if starts > 1:
        assert times[-1] == after(32 * HOUR_S)


def test_windows_that_fall_together_count_once() -> None:
    assert len(_starts(JOB, recorded(8.5), 50)) == 4


def test_windows_of_event_data_are_spread_evenly() -> None:
    times = _starts(JOB, recorded(tick_s=None), 4)
    steps = {b - a for a, b in pairwise(times)}
    assert steps == {timedelta(hours=32) / 3}


def test_a_record_shorter_than_the_job_is_refused() -> None:
    with pytest.raises(MarketError, check=has_code("market_too_short")):
        _starts(JOB, recorded(7), 3)


def test_baselines_share_the_objective_and_may_use_every_capacity_type() -> None:
    first = Policy(
        "mine",
        objective=Objective(usd_per_kwh=1.0),
        limits=Limits(max_usd=9.0, capacity_types=(CapacityType.ON_DEMAND,)),
    )
    everything = with_baselines([first], first)
    assert [p.name for p in everything] == [*BASELINES, "mine"]
    for baseline in everything[:3]:
        assert baseline.strategy.name == baseline.name
        assert baseline.objective == first.objective
        assert baseline.limits.max_usd == 9.0
        assert baseline.limits.capacity_types == Limits().capacity_types
    assert everything[3] is first


def figures_of(scores: Iterable[tuple[Trial, Score]]) -> dict[tuple[Window, str], Score]:
    return {(trial.window, trial.label): score for trial, score in scores}


def test_one_score_per_window_and_policy_and_none_below_the_optimum() -> None:
    record = recorded()
    trials = every_trial(record, 3)
    scores = figures_of(backtest(config_on(record), trials, run_here))
    assert list(scores) == [(trial.window, trial.label) for trial in trials]
    for (window, _), score in scores.items():
        best = scores[window, OPTIMUM]
        assert score.on_time is True
        assert score.usd is not None
        assert best.usd is not None
        assert score.usd >= best.usd - 1e-5
    assert scores == figures_of(backtest(config_on(record), trials, run_here))


def test_two_processes_score_as_one_does() -> None:
    record = recorded()
    trials = every_trial(record, 2)
    assert figures_of(run_in_processes(config_on(record), trials, 2)) == figures_of(
        run_here(config_on(record), trials)
    )


def test_what_goes_wrong_in_a_process_is_reported_with_its_hint() -> None:
    record = recorded()
    too_late = Window(record.name, shift_job(JOB, after(39 * HOUR_S)))
    trials = [Trial(too_late, rules("on_demand")), Trial(too_late, rules("greedy_spot"))]
    with pytest.raises(MarketError, check=has_code("outside_market")) as caught:
        list(run_in_processes(config_on(record), trials, 2))
    assert caught.value.hint


def run_here(config: BacktestConfig, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Score]]:
    return run_in_processes(config, trials, 1)


def test_every_start_is_tried_with_every_start_up_time() -> None:
    found = windows(JOB, "m", (T0, after(HOUR_S)), (60.0, 360.0))
    assert [(w.job.start_at, w.job.startup_s) for w in found] == [
        (T0, 60.0), (T0, 360.0), (after(HOUR_S), 60.0), (after(HOUR_S), 360.0),
    ]  # fmt: skip


def test_windows_keep_clear_of_gaps() -> None:
    """Nothing was observed of one pool from hour 10 to 12, nor of the other from 30 to 31."""
    record = market(
        pool_history(
            SPOT_A, [(0, 1, 2.0), (10 * HOUR_S, None, 2.0), (12 * HOUR_S, 1, 2.0)], 40 * HOUR_S
        ),
        pool_history(
            SAFE, [(0, 9, 8.0), (30 * HOUR_S, 9, None), (31 * HOUR_S, 9, 8.0)], 40 * HOUR_S
        ),
        tick_s=600.0,
    )
    span = timedelta(hours=8)
    covered = record_coverage(record, record.pools, span)
    assert covered.starts == (
        (after(0), after(2 * HOUR_S)),
        (after(12 * HOUR_S), after(22 * HOUR_S)),
        (after(31 * HOUR_S), after(32 * HOUR_S)),
    )
    assert covered.gap_s == 3 * HOUR_S
    assert covered.usable_share == pytest.approx(13 / 32)
    times = window_starts(JOB, record, 40, covered)
    assert len(times) == 40
    for time in times:
        assert any(begin <= time <= end for begin, end in covered.starts)
        assert (time - T0) % timedelta(seconds=600) == timedelta(0)
    assert times[0] == T0
    assert times[-1] == after(32 * HOUR_S)
    anywhere = record_coverage(record, record.pools, span, over_gaps=True)
    assert anywhere.starts == ((T0, after(32 * HOUR_S)),)


@pytest.mark.parametrize("tick_s", [600.0, None])
def test_windows_begin_no_closer_than_a_tick(tick_s: float | None) -> None:
    record = recorded(tick_s=tick_s)
    tick = timedelta(seconds=tick_s or DEFAULT_TICK_S)
    times = _starts(JOB, record, 100_000)
    assert len(times) == timedelta(hours=32) // tick + 1
    assert all(later - earlier >= tick for earlier, later in pairwise(times))
    assert (times[0], times[-1]) == (T0, after(32 * HOUR_S))


def test_a_policy_that_is_a_baseline_is_not_tried_twice() -> None:
    policy = load_policy("on-demand")
    names = [each.name for each in with_baselines([policy], policy)]
    assert names == ["greedy_spot", "uniform_progress", "on-demand"]
    first = replace(load_policy("cheapest"), objective=policy.objective)
    assert len(with_baselines([first, policy], first)) == 4
    elsewhere = replace(policy, limits=replace(policy.limits, regions=("eu-north-1",)))
    assert len(with_baselines([first, elsewhere], first)) == 5
    more_expensive = replace(policy, objective=Objective(usd_per_kwh=1.0))
    assert len(with_baselines([first, more_expensive], first)) == 5


def test_a_pool_that_was_never_observed_does_not_count_as_a_gap() -> None:
    record = market(
        pool_history(SPOT_A, [(0, None, 2.0)], 40 * HOUR_S),
        pool_history(SAFE, [(0, 9, 8.0)], 40 * HOUR_S),
        tick_s=600.0,
    )
    covered = record_coverage(record, record.pools, timedelta(hours=8))
    assert covered.unobserved == (SPOT_A,)
    assert covered.gap_s == 0
    assert covered.usable_share == 1


def test_a_record_full_of_gaps_is_refused_with_a_way_out() -> None:
    states = [(h * HOUR_S, None if h % 5 == 4 else 1, 2.0) for h in range(40)]
    changes = [s for i, s in enumerate(states) if i == 0 or s[1] != states[i - 1][1]]
    record = market(pool_history(SPOT_A, changes, 40 * HOUR_S), tick_s=600.0)
    with pytest.raises(MarketError, check=has_code("gaps")) as caught:
        _starts(JOB, record, 3)
    assert "--over-gaps" in (caught.value.hint or "")


def test_a_shifted_job_keeps_its_span() -> None:
    moved = shift_job(JOB, after(3 * HOUR_S))
    assert moved.start_at == after(3 * HOUR_S)
    assert moved.until_at - moved.start_at == JOB.until_at - JOB.start_at
