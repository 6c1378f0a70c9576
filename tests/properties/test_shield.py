"""Whatever the market does, a shielded strategy is in time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.backtesting.replay import replay
from costopt.domain.view import Decision, Desired, View
from costopt.strategies.gang_options import gang_options, spot_options
from costopt.strategies.shield import ShieldedStrategy
from costopt.strategies.spread_gangs import spread_options
from tests.support.cant_be_late import NoHazard, OneMachine, OnePower, job, market, policy

GAP_S = 600.0
traces = st.lists(st.tuples(st.booleans(), st.integers(1, 20)), min_size=1, max_size=40).map(
    lambda runs: [int(up) for up, length in runs for _ in range(length)]
)


class Reckless:
    """Spot or nothing, in one zone or several, without any thought of the deadline."""

    def decide(self, view: View) -> Desired:
        decisions = []
        for job_view in view.jobs:
            options = (*gang_options(view, job_view), *spread_options(view, job_view))
            best = next(iter(spot_options(options)), None)
            decisions.append(Decision(job_view.job.name, best.targets if best else (), "reckless"))
        return Desired(tuple(decisions))


@settings(max_examples=60, deadline=None)
@given(
    trace=traces,
    slack_h=st.floats(0.5, 6.0),
    overhead_h=st.sampled_from([0.02, 0.1, 0.3]),
)
def test_a_reckless_strategy_is_in_time_behind_the_shield(
    trace: list[int], slack_h: float, overhead_h: float
) -> None:
    task_h = 6.0
    deadline_h = task_h + overhead_h + GAP_S / 3600 + slack_h
    up = (trace * 100)[: int(3.1 * deadline_h * 3600 / GAP_S)]
    task = job(deadline_h, overhead_h, task_h)
    run = replay(
        task,
        policy("greedy_spot"),
        market(up, GAP_S),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=ShieldedStrategy(Reckless()),
    )
    assert run.summary.on_time is True
    assert run.summary.done_units == pytest.approx(task.work.amount)


def test_without_the_shield_the_same_strategy_is_late() -> None:
    up = [0] * 200
    run = replay(
        job(8, 0.1, 6.0),
        policy("greedy_spot"),
        market(up, GAP_S),
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=Reckless(),
    )
    assert run.summary.on_time is False
    assert run.summary.finished_at is None


@settings(max_examples=40, deadline=None)
@given(
    trace=traces,
    offset_s=st.integers(0, 599),
    save_s=st.floats(0, 300),
    on_grid=st.booleans(),
)
def test_unannounced_interruptions_between_ticks_do_not_make_it_late(
    trace: list[int], offset_s: int, save_s: float, on_grid: bool
) -> None:
    """Ticks on and off the grid, no notice, saves that cost time: nothing may be relied on."""
    task_h = 6.0
    task = job(task_h + 3.0, 0.1, task_h, start_s=offset_s)
    task = replace(
        task, checkpoint=replace(task.checkpoint, save_s=save_s, restore_s=60, interval_s=1800)
    )
    up = (trace * 100)[: int(3.2 * 9 * 3600 / GAP_S)]
    history = replace(market(up, GAP_S), tick_s=GAP_S if on_grid else None)
    run = replay(
        task,
        policy("greedy_spot"),
        history,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=ShieldedStrategy(Reckless()),
        tick_s=GAP_S if on_grid else 300,
        notice_s=0,
    )
    assert run.summary.on_time is True
    finished_at = run.summary.finished_at
    assert finished_at is not None
    assert finished_at <= task.until_at
