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

from costopt.domain.history import MarketHistory
from costopt.domain.job import Job, Phase, Resources
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Limits
from costopt.replay.hindsight import hindsight_usd
from costopt.replay.rehearsal import rehearse
from tests.engine_fixtures import BIG_SAFE, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.market_fixtures import market, pool_history
from tests.replay.cant_be_late import NoHazard

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


def _job(work_s: float, overhead_s: float, span_s: float) -> Job:
    job = replace(task(work_s, span_s, save_s=0), startup_s=overhead_s)
    return replace(job, checkpoint=replace(job.checkpoint, restore_s=0.0, interval_s=1e9))


def _by_trying(lanes: Sequence[Lane], work_s: float, overhead_s: float, span_s: float) -> float:
    """Every sequence of pool-or-nothing, tick by tick."""
    best = math.inf
    ticks = math.ceil(span_s / GRID_S)
    for choice in itertools.product(range(-1, len(lanes)), repeat=ticks):
        usd, before, run_s, done_s = 0.0, -1, 0.0, 0.0
        for tick, lane in enumerate(choice):
            if lane < 0:
                before = -1
                continue
            price = lanes[lane][tick]
            if price is None:
                break
            run_s = GRID_S if lane != before else run_s + GRID_S
            useful_s = min(GRID_S, max(0.0, run_s - overhead_s))
            begins_s = (tick + 1) * GRID_S - useful_s
            usd, before = usd + price * GRID_S / 3600, lane
            if done_s + useful_s >= work_s - 1e-9:
                if begins_s + work_s - done_s <= span_s + 1e-9:
                    best = min(best, usd)
                break
            done_s += useful_s
    return best


prices = st.sampled_from([None, 1.0, 2.0, 5.0])
constant = st.sampled_from([None, 2.0])


def _check(lanes: list[Lane], work_s: float, overhead_s: float, cut_s: float) -> None:
    span_s = len(lanes[0]) * GRID_S - cut_s
    pools = dict(zip([SPOT_A, SAFE], lanes, strict=False))
    best = hindsight_usd(_job(work_s, overhead_s, span_s), POLICY, _market(pools), Machines())
    expected = _by_trying(lanes, work_s, overhead_s, span_s)
    assert best == (pytest.approx(expected) if math.isfinite(expected) else None)


@settings(max_examples=60, deadline=None)
@given(
    lane=st.lists(prices, min_size=4, max_size=9),
    work_s=st.sampled_from([300.0, 600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
)
def test_one_pool(lane: list[float | None], work_s: float, overhead_s: float, cut_s: float) -> None:
    _check([lane], work_s, overhead_s, cut_s)


@settings(max_examples=40, deadline=None)
@given(
    pair=st.lists(st.tuples(prices, prices), min_size=4, max_size=7),
    work_s=st.sampled_from([600.0, 1100.0, 1800.0]),
    overhead_s=st.sampled_from([0.0, 30.0, 200.0, 700.0]),
    cut_s=st.sampled_from([0.0, 250.0]),
)
def test_two_pools(
    pair: list[tuple[float | None, float | None]],
    work_s: float,
    overhead_s: float,
    cut_s: float,
) -> None:
    _check([[a for a, _ in pair], [b for _, b in pair]], work_s, overhead_s, cut_s)


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
        paid = rehearse(
            job, rules(name), history, machines=Machines(), powers=Powers(), hazards=NoHazard()
        )
        assert paid.summary.usd >= best - 1e-6


def _plain() -> tuple[Job, MarketHistory]:
    return _job(1200.0, 60.0, 6000.0), _market({SPOT_A: [2.0] * 20, SAFE: [8.0] * 20})


def test_it_is_not_defined_where_pools_differ_in_speed() -> None:
    job, _ = _plain()
    history = _market({SAFE: [8.0] * 20, BIG_SAFE: [30.0] * 20})
    assert hindsight_usd(job, POLICY, history, Machines()) is None
    slow_only = replace(job, resources=Resources(instance_types=("p3.2xlarge",)))
    assert hindsight_usd(slow_only, POLICY, history, Machines()) is not None


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
