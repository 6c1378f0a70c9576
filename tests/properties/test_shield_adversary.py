"""Markets made to hurt: spot that goes at the worst time, on-demand that is short when asked for,
flex-start that never comes.

COSTOPT_TRACES says how many markets are tried (``make soak``: 100,000).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting.replay import ReplayResult, replay
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, View
from costopt.strategies import build
from costopt.strategies.gang_options import gang_options
from costopt.strategies.shield import ShieldedStrategy
from tests.properties.test_shield import GAP_S, Reckless
from tests.support.cant_be_late import EPOCH, NoHazard, OneMachine, OnePower, job, market, policy

TRACES = int(os.environ.get("COSTOPT_TRACES", "200"))
TASK_H, OVERHEAD_H = 3.0, 0.3
RESERVE_TICKS = 3
MAX_TICKS = 60

runs = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)
shortages = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, RESERVE_TICKS)), min_size=1, max_size=12
)
"""Ticks with on-demand capacity, then without; never longer without than the reserve."""


def _ticks(spans: Iterable[tuple[int, int]]) -> list[int]:
    once = [up for have, lack in spans for up in [1] * have + [0] * lack]
    return (once * 3 * MAX_TICKS)[: 3 * MAX_TICKS]


def _market(spot: list[int], on_demand: list[int]) -> MarketHistory:
    made = market(spot, GAP_S)
    states = {pool: history.states for pool, history in made.pools.items()}
    (uninterruptible,) = (pool for pool in states if not pool.capacity_type.is_interruptible)
    usd = states[uninterruptible][0].price_usd_per_hour
    short = tuple(
        MarketState(EPOCH + timedelta(seconds=GAP_S * tick), 10 * up, usd)
        for tick, up in enumerate(on_demand)
    )
    return replace(
        made,
        pools={**made.pools, uninterruptible: replace(made.pools[uninterruptible], states=short)},
    )


def _with_flex_start(history: MarketHistory, comes: list[int]) -> MarketHistory:
    """Flex-start has room where ``comes`` says so, and is cheaper than all else."""
    (uninterruptible,) = (pool for pool in history.pools if not pool.capacity_type.is_interruptible)
    flex_start = uninterruptible.with_capacity_type(CapacityType.FLEX_START)
    states = tuple(
        MarketState(EPOCH + timedelta(seconds=GAP_S * tick), up, 0.5)
        for tick, up in enumerate(comes)
    )
    waits = PoolHistory(flex_start, states, history.pools[uninterruptible].ends_at)
    return replace(history, pools={**history.pools, flex_start: waits})


class WaitsForEver:
    """Flex-start or nothing, without any thought of the deadline."""

    def decide(self, view: View) -> Desired:
        decisions = []
        for job_view in view.jobs:
            wanted = [
                option
                for option in gang_options(view, job_view)
                if option.pool.capacity_type is CapacityType.FLEX_START
            ]
            targets = wanted[0].targets if wanted else ()
            decisions.append(Decision(job_view.job.name, targets, "patient"))
        return Desired(tuple(decisions))


def _run(task: Job, history: MarketHistory, strategy: Strategy, reserve_ticks: int) -> ReplayResult:
    rules = replace(policy("greedy_spot"), limits=Limits(capacity_types=tuple(CapacityType)))
    return replay(
        task,
        replace(rules, risk=replace(rules.risk, reserve_s=reserve_ticks * GAP_S)),
        history,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=strategy,
    )


@settings(max_examples=TRACES, deadline=None)
@given(
    spot=runs,
    on_demand=shortages,
    slack_ticks=st.integers(1, 20),
    name=st.sampled_from(["reckless", "greedy_spot", "adaptive"]),
)
def test_no_market_makes_a_shielded_strategy_late(
    spot: list[tuple[int, int]],
    on_demand: list[tuple[int, int]],
    slack_ticks: int,
    name: str,
) -> None:
    spare_s = (RESERVE_TICKS + slack_ticks) * GAP_S
    task = job(TASK_H + OVERHEAD_H + spare_s / 3600, OVERHEAD_H, TASK_H)
    strategy = ShieldedStrategy(Reckless()) if name == "reckless" else build(policy(name).strategy)
    run = _run(task, _market(_ticks(spot), _ticks(on_demand)), strategy, RESERVE_TICKS)
    assert run.summary.on_time is True
    assert run.summary.done_units == pytest.approx(task.work.amount)


@settings(max_examples=TRACES, deadline=None)
@given(
    spot=runs,
    on_demand=shortages,
    flex_start=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=6),
    slack_ticks=st.integers(1, 40),
    name=st.sampled_from(["patient", "adaptive"]),
)
def test_waiting_for_what_may_never_come_makes_no_shielded_strategy_late(
    spot: list[tuple[int, int]],
    on_demand: list[tuple[int, int]],
    flex_start: list[tuple[int, int]],
    slack_ticks: int,
    name: str,
) -> None:
    spare_s = (RESERVE_TICKS + slack_ticks) * GAP_S
    task = job(TASK_H + OVERHEAD_H + spare_s / 3600, OVERHEAD_H, TASK_H)
    strategy = (
        ShieldedStrategy(WaitsForEver()) if name == "patient" else build(policy(name).strategy)
    )
    history = _with_flex_start(_market(_ticks(spot), _ticks(on_demand)), _ticks(flex_start))
    run = _run(task, history, strategy, RESERVE_TICKS)
    assert run.summary.on_time is True
    assert run.summary.done_units == pytest.approx(task.work.amount)


def test_a_shortage_that_outlasts_the_reserve_makes_it_late() -> None:
    """The bound is tight: one tick less in reserve than on-demand was short for."""
    task = job(TASK_H + OVERHEAD_H + 5 * GAP_S / 3600, OVERHEAD_H, TASK_H)
    found = []
    for reserve_ticks in (RESERVE_TICKS - 1, RESERVE_TICKS):
        at_worst = [
            _run(
                task,
                _market([0] * 90, [1] * first + [0] * RESERVE_TICKS + [1] * 60),
                ShieldedStrategy(Reckless()),
                reserve_ticks,
            ).summary.on_time
            for first in range(1, 6)
        ]
        found.append(all(at_worst))
    assert found == [False, True]
