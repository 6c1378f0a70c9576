"""Windows, baselines and the order of outcomes."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits, Objective, Policy
from costopt.replay.backtest import BASELINES, Bench, backtest, shift, windows, with_baselines
from tests.engine_fixtures import HOUR_S, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.market_fixtures import T0, after, market, pool_history
from tests.replay.cant_be_late import NoHazard


def _market(hours: float = 40, tick_s: float | None = 600.0) -> MarketHistory:
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


@pytest.mark.parametrize("starts", [1, 2, 7, 50])
def test_windows_lie_on_the_grid_within_the_record(starts: int) -> None:
    record = _market()
    times = windows(JOB, record, starts)
    assert len(times) == starts
    assert times[0] == T0
    assert list(times) == sorted(set(times))
    for time in times:
        assert (time - T0) % timedelta(seconds=600) == timedelta(0)
        assert time + timedelta(hours=8) <= record.ends_at
    if starts > 1:
        assert times[-1] == after(32 * HOUR_S)


def test_windows_that_fall_together_count_once() -> None:
    assert len(windows(JOB, _market(8.5), 50)) == 4


def test_windows_of_event_data_are_spread_evenly() -> None:
    times = windows(JOB, _market(tick_s=None), 4)
    steps = {b - a for a, b in itertools.pairwise(times)}
    assert steps == {timedelta(hours=32) / 3}


def test_a_record_shorter_than_the_job_is_refused() -> None:
    with pytest.raises(MarketError, match=r"holds 7\.0 h and job 'job' takes up to 8\.0 h"):
        windows(JOB, _market(7), 3)


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


def test_one_outcome_per_window_and_policy_and_the_optimum_beside_it() -> None:
    record = _market()
    starts = windows(JOB, record, 3)
    policies = (rules("on_demand"), rules("greedy_spot"))
    bench = Bench(Machines(), lambda _: Powers(), NoHazard)
    outcomes = list(backtest(JOB, policies, record, starts, bench))
    assert [(o.start_at, o.rehearsal.strategy) for o in outcomes] == [
        (start, policy.strategy.name) for start in starts for policy in policies
    ]
    for outcome in outcomes:
        assert outcome.rehearsal.summary.on_time is True
        assert outcome.hindsight_usd is not None
        assert outcome.rehearsal.summary.usd >= outcome.hindsight_usd - 1e-5
    assert outcomes == list(backtest(JOB, policies, record, starts, bench))


def test_a_shifted_job_keeps_its_span() -> None:
    moved = shift(JOB, after(3 * HOUR_S))
    assert moved.start_at == after(3 * HOUR_S)
    assert moved.deadline_at - moved.start_at == JOB.deadline_at - JOB.start_at
