"""The end of a job, which lies within a step of the program."""

from __future__ import annotations

import pytest

from costopt.backtesting.replay import replay
from costopt.controller.forecasts import DEFAULT_HAZARD
from costopt.domain.events import DecisionMade
from costopt.market.hazard import LearnedHazard
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    Machines,
    Powers,
    always,
    rules,
    task,
)
from tests.support.market_fixtures import market


@pytest.mark.parametrize("tick_s", [60.0, 300.0, 900.0])
@pytest.mark.parametrize("work_s", [600, 1200, 2400, 5400])
@pytest.mark.parametrize("deadline_h", [4, 24])
def test_a_gang_that_is_nearly_done_is_not_given_up(
    tick_s: float, work_s: float, deadline_h: float
) -> None:
    run = replay(
        task(work_s=work_s, deadline_s=deadline_h * HOUR_S),
        rules("adaptive"),
        market(always(SPOT_A, 4, 2.0), always(SAFE, 4, 8.0)),
        machines=Machines(),
        powers=Powers(),
        hazards=LearnedHazard(lambda _: DEFAULT_HAZARD),
        tick_s=tick_s,
    )
    decided = [each.event for each in run.events if isinstance(each.event, DecisionMade)]
    assert [decision.targets for decision in decided] == [((str(SPOT_A), 1),)]
    finished_at, start_at = run.summary.finished_at, run.summary.start_at
    assert finished_at is not None
    assert start_at is not None
    assert (finished_at - start_at).total_seconds() < work_s + 300 + tick_s
