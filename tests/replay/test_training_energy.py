"""Training energy is that of the work, however often the gang was handed over or broken."""

from __future__ import annotations

import pytest

from costopt.backtesting.replay import replay
from costopt.domain.history import MarketHistory
from tests.support.cant_be_late import NoHazard, OneMachine, OnePower, job, market, policy

BUSY_W_AT_METER = 400 * 1.2
TASK_H = 6.0


@pytest.mark.parametrize("notice_s", [0.0, 120.0, 300.0])
@pytest.mark.parametrize("strategy", ["greedy_spot", "uniform_progress", "on_demand"])
def test_busy_energy_is_that_of_the_work(strategy: str, notice_s: float) -> None:
    """Saves are instant, so no work is lost and all busy time is work."""
    up = ([1] * 37 + [0] * 11 + [1] * 3 + [0] * 20) * 30
    here, there = market(up, 60.0), market(up[40:] + up[:40], 60.0, zone="us-west-2b")
    both = MarketHistory("two zones", {**here.pools, **there.pools}, 60.0, "test")
    task = job(12.0, 0.1, TASK_H)
    run = replay(
        task,
        policy(strategy),
        both,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        notice_s=notice_s,
    )
    assert run.summary.lost_units == 0
    assert run.summary.interruptions > 2 or strategy == "on_demand"
    assert run.summary.busy_wh == pytest.approx(TASK_H * BUSY_W_AT_METER, rel=0.005)
