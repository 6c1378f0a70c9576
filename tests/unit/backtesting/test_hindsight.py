"""The optimum of hindsight against trying everything, and against what our strategies pay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting import optimal_path
from costopt.backtesting.hindsight import hindsight_optimum
from costopt.backtesting.replay import replay
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Limits
from costopt.domain.throughput import Throughput, ThroughputSample
from tests.support.cant_be_late import NoHazard, hindsight_usd
from tests.support.engine_fixtures import BIG_SAFE, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.support.market_fixtures import market, pool_history

GRID_S = 600.0
POLICY = rules("greedy_spot")
Lane = Sequence[float | None]
"""Dollars per hour at each tick, None where the pool is down."""


def _market(lanes: dict[Pool, Lane]) -> MarketHistory:
    histories = []
    for pool, prices in lanes.items():
        states: list[tuple[float, int | None, float | None]] = []
        for tick, price in enumerate(prices):
            state = (tick * GRID_S, 0 if price is None else 1, 9.0 if price is None else price)
            if not states or states[-1][1:] != state[1:]:
                states.append(state)
        histories.append(pool_history(pool, states, len(prices) * GRID_S))
    return market(*histories, tick_s=GRID_S)


def _job(work_s: float, overhead_s: float, span_s: float, restore_s: float = 0.0) -> Job:
    job = replace(task(work_s, span_s, save_s=0), startup_s=overhead_s)
    return replace(job, checkpoint=replace(job.checkpoint, restore_s=restore_s, interval_s=1e9))


def _by_trying(
    lanes: Sequence[Lane], job: Job, span_s: float, speeds: Sequence[float] = (1.0, 1.0)
) -> float:
    """Every sequence of pool-or-nothing, tick by tick."""
    ticks = math.ceil(span_s / GRID_S)
    choices = itertools.product(range(-1, len(lanes)), repeat=ticks)
    return min(_cost(choice, lanes, job, span_s, speeds) for choice in choices)


def _cost(
    choice: Sequence[int], lanes: Sequence[Lane], job: Job, span_s: float, speeds: Sequence[float]
) -> float:
    """Dollars of one sequence up to the end of the work, inf where it is not done in time."""
    usd, before, starting_s, done = 0.0, -1, 0.0, 0.0
    for tick, lane in enumerate(choice):
        price = None if lane < 0 else lanes[lane][tick]
        if lane >= 0 and price is None:
            return math.inf
        if lane >= 0 and lane != before:
            starting_s = job.startup_s + (job.checkpoint.restore_s if done > 0 else 0.0)
        before = lane
        if price is None:
            continue
        wasted_s = min(GRID_S, starting_s)
        starting_s -= wasted_s
        usd += price * GRID_S / 3600
        ends_s = tick * GRID_S + wasted_s + (job.work.amount - done) / speeds[lane]
        if ends_s <= (tick + 1) * GRID_S + 1e-9:
            return usd if ends_s <= span_s + 1e-9 else math.inf
        done += (GRID_S - wasted_s) * speeds[lane]
    return math.inf


prices = st.sampled_from([None, 1.0, 2.0, 5.0])
constant = st.sampled_from([None, 2.0])


def _check(
    lanes: list[Lane], job: Job, pools: Sequence[Pool], speeds: Sequence[float] = (1.0, 1.0)
) -> None:
    span_s = (job.deadline_at - job.start_at).total_seconds()
    history = _market(dict(zip(pools, lanes, strict=False)))
    best = hindsight_optimum(job, POLICY, history, Machines(), with_moments=True)
    expected = _by_trying(lanes, job, span_s, speeds)
    if best is None:
        assert not math.isfinite(expected)
        return
    assert best.exact
    assert best.usd == pytest.approx(expected)
    assert best.moments[-1].usd == pytest.approx(expected)
    assert best.moments[-1].done_units == pytest.approx(job.work.amount)
    choice = [-1 if m.pool is None else list(pools).index(m.pool) for m in best.moments]
    assert _cost(choice, lanes, job, span_s, speeds) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(
    lane=st.lists(prices, min_size=4, max_size=9),
    work_s=st.sampled_from([300.0, 600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    restore_s=st.sampled_from([0.0, 60.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
)
def test_one_pool(
    lane: list[float | None], work_s: float, overhead_s: float, restore_s: float, cut_s: float
) -> None:
    span_s = len(lane) * GRID_S - cut_s
    _check([lane], _job(work_s, overhead_s, span_s, restore_s), [SPOT_A])


@settings(max_examples=40, deadline=None)
@given(
    pair=st.lists(st.tuples(prices, prices), min_size=4, max_size=7),
    work_s=st.sampled_from([600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    restore_s=st.sampled_from([0.0, 60.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
    other=st.sampled_from([SAFE, BIG_SAFE]),
)
def test_two_pools(
    pair: list[tuple[float | None, float | None]],
    work_s: float,
    overhead_s: float,
    restore_s: float,
    cut_s: float,
    other: Pool,
) -> None:
    """Of one speed, and where the other has four GPUs in place of one."""
    job = _job(work_s, overhead_s, len(pair) * GRID_S - cut_s, restore_s)
    speeds = [_speed(job, SPOT_A), _speed(job, other)]
    job = replace(job, work=replace(job.work, amount=work_s * speeds[0]))
    _check([[a for a, _ in pair], [b for _, b in pair]], job, [SPOT_A, other], speeds)


def _speed(job: Job, pool: Pool) -> float:
    machine = Machines().instance_type(pool)
    assert machine is not None
    speed = job.gang_units_per_s(machine, 1)
    assert speed is not None
    return speed.value


def test_where_progress_must_be_rounded_the_bounds_hold_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane: list[float | None] = [1.0, 5.0, None, 2.0, 2.0, 1.0, 5.0, 1.0]
    job = _job(1500.0, 70.0 * math.sqrt(2), 4800.0)
    expected = _by_trying([lane], job, 4800.0)
    monkeypatch.setattr(optimal_path, "MAX_LEVELS", 40)
    best = hindsight_optimum(job, POLICY, _market({SPOT_A: lane}), Machines())
    assert best is not None
    assert best.low_usd <= expected <= best.usd
    assert best.usd == pytest.approx(expected, rel=0.4)


def test_a_pool_that_is_always_up_may_be_launched_in_many_times() -> None:
    """Cheap in every third tick: four launches are cheaper than staying."""
    lane = [1.0, 50.0, 50.0] * 4
    best = hindsight_usd(_job(4 * 570.0, 30.0, 7200.0), POLICY, _market({SPOT_A: lane}), Machines())
    assert best == pytest.approx(4 / 6)


def test_no_strategy_pays_less_on_a_market_that_comes_and_goes() -> None:
    spot = ([2.0] * 5 + [None] * 4) * 12
    history = _market({SPOT_A: spot, SAFE: [8.0] * len(spot)})
    job = _job(20_000.0, 120.0, 40 * GRID_S)
    best = hindsight_usd(job, POLICY, history, Machines())
    assert best is not None
    for name in ("on_demand", "greedy_spot", "uniform_progress"):
        paid = replay(
            job, rules(name), history, machines=Machines(), powers=Powers(), hazards=NoHazard()
        )
        assert paid.summary.usd >= best - 1e-6


def _plain() -> tuple[Job, MarketHistory]:
    return _job(1200.0, 60.0, 6000.0), _market({SPOT_A: [2.0] * 20, SAFE: [8.0] * 20})


def test_it_is_not_defined_where_pools_differ_from_phase_to_phase() -> None:
    job, _ = _plain()
    history = _market({SAFE: [8.0] * 20, BIG_SAFE: [30.0] * 20})
    slow = Throughput(points=(ThroughputSample("V100", 1, 1.0), ThroughputSample("V100", 4, 1.1)))
    two = (Phase("a", 0.5, 1, 1), Phase("b", 0.5, 1, 1, throughput=slow))
    assert hindsight_usd(job, POLICY, history, Machines()) is not None
    assert hindsight_usd(replace(job, phases=two), POLICY, history, Machines()) is None


def test_it_is_not_defined_off_the_grid() -> None:
    job, history = _plain()
    assert hindsight_usd(job, POLICY, replace(history, tick_s=None), Machines()) is None
    later = replace(job, start_at=job.start_at + timedelta(seconds=60))
    assert hindsight_usd(later, POLICY, history, Machines()) is None


def test_it_is_not_defined_for_a_gang_that_may_change() -> None:
    job, history = _plain()
    job = replace(
        job, resources=Resources(min_nodes=1, max_nodes=2), phases=(Phase("all", 1, 1, 2),)
    )
    assert hindsight_usd(job, POLICY, history, Machines()) is None


def test_it_keeps_to_the_policy_s_capacity_types() -> None:
    job, history = _plain()
    safe_only = rules("on_demand", limits=Limits(capacity_types=(CapacityType.ON_DEMAND,)))
    cheap = hindsight_usd(job, POLICY, history, Machines())
    dear = hindsight_usd(job, safe_only, history, Machines())
    assert cheap == pytest.approx(2.0 * 3 / 6)
    assert dear == pytest.approx(8.0 * 3 / 6)
