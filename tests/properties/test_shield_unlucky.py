"""Launches on demand that are refused though they were offered, and starts that take long.

As long as the policy's reserve covers them the shield holds: refused launches at a stretch, each
for the time until the next is tried, and what starts take beyond what the job says.
COSTOPT_TRACES says how many markets are tried (``make soak``: 100,000).
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.history import MarketHistory
from costopt.domain.job import Job, Phase
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.ledger.summary import JobSummary
from costopt.strategies import build
from costopt.strategies.shield import ShieldedStrategy
from tests.properties.test_shield import Reckless
from tests.support.engine_fixtures import BIG_SAFE, SAFE, SPOT_A, SPOT_B, Machines, rules, task
from tests.support.market_fixtures import market, pool_history
from tests.support.unreliable_cloud import live_through

TRACES = int(os.environ.get("COSTOPT_TRACES", "200"))
TICK_S = 600.0
WORK_S = 18 * TICK_S
START_S = 1000.0
ENDS_S = 400 * TICK_S
MAX_REFUSALS = 3

spans = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)
"""Ticks with spot capacity, then without."""


def _market(
    runs: list[tuple[int, int]], *, on_grid: bool, with_fast: bool, in_a_zone: int = 4
) -> MarketHistory:
    lengths = [length for _ in range(20) for run in runs for length in run]
    begins = [0, *accumulate(lengths)][:-1]
    spot = [(TICK_S * tick, in_a_zone * (1 - i % 2), 2.0) for i, tick in enumerate(begins)]
    pools = [
        pool_history(SPOT_A, [state for state in spot if state[0] < ENDS_S], ENDS_S),
        pool_history(SPOT_B, [(0, 0, 2.0), (2 * TICK_S, in_a_zone % 4, 2.0)], ENDS_S),
        pool_history(SAFE, [(0, 4, 8.0)], ENDS_S),
    ]
    if with_fast:
        pools.append(pool_history(BIG_SAFE, [(0, 4, 36.0)], ENDS_S))
    return market(*pools, tick_s=TICK_S if on_grid else None)


def _task(save_s: float, interval_s: float, spare_s: float, restore_s: float = 400.0) -> Job:
    """Due so that at the start, with everything held back, ``spare_s`` are left."""
    saves_s = save_s * (WORK_S / interval_s + 2)
    job = task(WORK_S, START_S + WORK_S + saves_s + spare_s, save_s=save_s)
    checkpoint = replace(job.checkpoint, restore_s=restore_s, interval_s=interval_s)
    return replace(job, startup_s=START_S - restore_s, checkpoint=checkpoint)


def _pair(job: Job) -> Job:
    """The same on two nodes, which may be in two zones."""
    return replace(
        job,
        resources=replace(job.resources, min_nodes=2, max_nodes=2, zone_traffic_gib=0.0),
        phases=(Phase("all", 1.0, 2, 2),),
        throughput=Throughput((ThroughputSample("V100", 2, 1.0),), scaling_efficiency=1.0),
    )


def _strategy(name: str) -> tuple[Policy, Strategy]:
    policy = rules("greedy_spot" if name == "reckless" else name)
    return policy, ShieldedStrategy(Reckless()) if name == "reckless" else build(policy.strategy)


def _reserve_s(refusals: int, retry_s: float, late_s: float, *, on_grid: bool) -> float:
    """m + k · r + s of the shield's contract, where capacity is never known to be short."""
    return refusals * retry_s + late_s * (2 if on_grid else 1)


def _live(
    job: Job,
    history: MarketHistory,
    name: str,
    reserve_s: float,
    *,
    refusals: list[int],
    late_s: float,
    cooldown_s: float,
) -> JobSummary:
    policy, strategy = _strategy(name)
    policy = replace(policy, risk=replace(policy.risk, reserve_s=reserve_s))
    return live_through(
        job,
        policy,
        history,
        strategy,
        Machines(),
        refusals=refusals,
        late_s=late_s,
        cooldown_s=cooldown_s,
        tick_s=TICK_S,
    )


@settings(max_examples=TRACES, deadline=None)
@given(
    runs=spans,
    refusals=st.lists(st.integers(0, MAX_REFUSALS), min_size=1, max_size=6),
    late_s=st.sampled_from([0.0, 100.0, 700.0, 1500.0]),
    cooldown_s=st.sampled_from([0.0, 300.0, 1500.0]),
    slack_s=st.floats(TICK_S, 8 * TICK_S),
    save_s=st.sampled_from([0.0, 30.0, 900.0]),
    interval_s=st.sampled_from([1200.0, 1800.0, 3100.0]),
    on_grid=st.booleans(),
    with_fast=st.booleans(),
    name=st.sampled_from(["reckless", "greedy_spot", "uniform_progress", "adaptive", "on_demand"]),
    spread=st.booleans(),
)
def test_refused_launches_and_late_starts_within_the_reserve_make_nothing_late(
    runs: list[tuple[int, int]],
    refusals: list[int],
    late_s: float,
    cooldown_s: float,
    slack_s: float,
    save_s: float,
    interval_s: float,
    on_grid: bool,
    with_fast: bool,
    name: str,
    spread: bool,
) -> None:
    retry_ticks = max(1, math.ceil(cooldown_s / TICK_S)) if with_fast else 1
    # A slower pool that takes the launch meanwhile does not begin the count again.
    refused = refusals[:1] if with_fast else refusals * 50
    reserve_s = _reserve_s(max(refused), retry_ticks * TICK_S, late_s, on_grid=on_grid)
    job = _task(save_s, interval_s, reserve_s + slack_s)
    summary = _live(
        _pair(job) if spread else job,
        _market(runs, on_grid=on_grid, with_fast=with_fast, in_a_zone=1 if spread else 4),
        name,
        reserve_s,
        refusals=refused,
        late_s=late_s,
        cooldown_s=cooldown_s,
    )
    assert summary.on_time is True
    assert summary.done_units == pytest.approx(WORK_S)


@pytest.mark.parametrize(
    ("refusals", "late_s"), [(MAX_REFUSALS, 0.0), (0, 900.0), (MAX_REFUSALS, 900.0)]
)
def test_a_reserve_that_is_smaller_may_be_late(refusals: int, late_s: float) -> None:
    """The bound is tight: a little less than refusals and late starts take is not enough."""
    needed_s = _reserve_s(refusals, TICK_S, late_s, on_grid=False)
    found = []
    for reserve_s in (needed_s - 60.0, needed_s):
        on_time = [
            _live(
                _task(0.0, 1800.0, reserve_s + slack_s, restore_s=0.0),
                _market([(1, 6)], on_grid=False, with_fast=False),
                "reckless",
                reserve_s,
                refusals=[refusals],
                late_s=late_s,
                cooldown_s=1500.0,
            ).on_time
            for slack_s in (TICK_S, TICK_S + 30, 2 * TICK_S - 1)
        ]
        found.append(all(on_time))
    assert found == [False, True]
