"""Phases, gang sizes, and hours of different cost in what adaptive decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.estimate import Series
from costopt.domain.fleet import Node
from costopt.domain.job import Job, Phase
from costopt.domain.market import Pool
from costopt.domain.policy import Objective
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.domain.view import Decision, Target, View
from costopt.strategies.adaptive.strategy import AdaptiveStrategy
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, task
from tests.support.market_fixtures import T0
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

ON_A, ON_SAFE = (Target(SPOT_A, 1),), (Target(SAFE, 1),)
WAIT: tuple[Target, ...] = ()
REGION = "aws/us-east-1"
GREEN = Objective(usd=0.01, usd_per_tonne_co2e=1000.0)


def _hourly(*values: float) -> Series:
    return Series(tuple(T0 + timedelta(hours=hour) for hour in range(len(values))), values, "test")


DIRTY_DAY = _hourly(*[600.0] * 8, *[50.0] * 8, *[600.0] * 32)
"""Grams per kWh: clean from the eighth hour to the sixteenth."""


def _decide(
    deadline_h: float,
    *,
    carbon: Mapping[str, Series] | None = None,
    prices: Mapping[Pool, Series] | None = None,
    objective: Objective | None = None,
    now_h: float = 0.0,
    spot: tuple[Pool, ...] = (SPOT_A,),
) -> Decision:
    """4 h of work on a gang on spot at $2 or on demand at $8."""
    view = build_view(
        task(deadline_s=deadline_h * HOUR_S),
        [*(offer(pool, 2.0) for pool in spot), offer(SAFE, 8.0)],
        now_s=now_h * HOUR_S,
        objective=objective,
    )
    view = replace(view, carbon_forecasts=carbon or {}, price_forecasts=prices or {})
    return only(ShieldedStrategy(AdaptiveStrategy()).decide(view))


@pytest.mark.parametrize("spot", [(SPOT_A,), (SPOT_A, SPOT_B), ()])
@pytest.mark.parametrize(
    ("deadline_h", "now_h", "waits"), [(20, 0, True), (5, 0, False), (20, 8.1, False)]
)
def test_a_job_whose_carbon_counts_waits_for_the_clean_hours_while_it_has_slack(
    spot: tuple[Pool, ...], deadline_h: float, now_h: float, waits: bool
) -> None:
    decision = _decide(
        deadline_h, carbon={REGION: DIRTY_DAY}, objective=GREEN, now_h=now_h, spot=spot
    )
    assert (decision.targets == WAIT) is waits


@pytest.mark.parametrize(
    ("carbon", "objective"),
    [({}, GREEN), ({REGION: DIRTY_DAY}, Objective()), ({REGION: _hourly(300.0)}, GREEN)],
)
def test_without_a_reason_to_wait_it_does_not(
    carbon: Mapping[str, Series], objective: Objective
) -> None:
    assert _decide(20, carbon=carbon, objective=objective).targets == ON_A


def test_it_waits_for_a_price_that_is_forecast_to_fall() -> None:
    falls = {SPOT_A: _hourly(2.0, 2.0, 0.4)}
    assert _decide(20, prices=falls).targets == WAIT
    assert _decide(20, prices={SPOT_A: _hourly(2.0, 2.0, 2.5)}).targets == ON_A
    assert _decide(4.9, prices=falls).targets != WAIT


def test_a_forecast_without_an_end_to_it_does_not_unsettle() -> None:
    assert _decide(20, prices={SPOT_A: _hourly(2.0, float("nan"))}).targets == ON_A


def test_the_program_is_solved_once_while_forecasts_stay() -> None:
    strategy = AdaptiveStrategy()
    programs = set()
    for tick in range(12):
        view = build_view(
            task(deadline_s=20 * HOUR_S),
            [offer(SPOT_A, 2.0), offer(SAFE, 8.0)],
            now_s=300.0 * tick,
            objective=GREEN,
        )
        strategy.decide(replace(view, carbon_forecasts={REGION: DIRTY_DAY}))
        programs.add(id(strategy._programs[0]["job"]))
    assert len(programs) == 1


def _phased(*, may_pause: bool = True, second_speed: float = 0.25) -> Job:
    """2 h of work at full speed, then as much again; 24 h in all."""
    slow = Throughput((ThroughputSample("V100", 1, second_speed),))
    return replace(
        task(deadline_s=24 * HOUR_S),
        phases=(
            Phase("quick", 0.5, 1, 1),
            Phase("slow", 0.5, 1, 1, may_pause=may_pause, throughput=slow),
        ),
    )


def _phase_view(job: Job, *, now_h: float, done_h: float, nodes: tuple[Node, ...] = ()) -> View:
    return build_view(
        job,
        [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0)],
        now_s=now_h * HOUR_S,
        done=done_h * HOUR_S,
        nodes=nodes,
    )


@pytest.mark.parametrize(("second_speed", "expected"), [(1.0, WAIT), (0.25, ON_SAFE)])
def test_the_work_left_is_measured_phase_by_phase(
    second_speed: float, expected: tuple[Target, ...]
) -> None:
    """13 h before the deadline 4 h of work are left, or 10 h."""
    view = _phase_view(_phased(second_speed=second_speed), now_h=13.2, done_h=0.0)
    assert only(AdaptiveStrategy().decide(view)).targets == expected


def test_a_phase_that_may_not_pause_makes_interruptible_capacity_more_expensive() -> None:
    """What is lost in it must be replaced at once."""
    values = []
    for may_pause in (True, False):
        job = _phased(may_pause=may_pause, second_speed=1.0)
        view = build_view(job, [offer(SPOT_A, 2.0), offer(SAFE, 8.0)], done=2.1 * HOUR_S)
        decision = only(AdaptiveStrategy().decide(view))
        (reported,) = [each for each in decision.alternatives if str(SPOT_A) in each.choice]
        assert reported.value_usd is not None
        values.append(reported.value_usd)
    assert values[1] > 1.02 * values[0]


def test_each_phase_costs_what_its_gang_does() -> None:
    """A second phase on four nodes costs four times as much an hour."""
    points = tuple(ThroughputSample("V100", n, 1.0) for n in (1, 4))
    values = []
    for nodes in (1, 4):
        job = replace(
            task(deadline_s=40 * HOUR_S, nodes=(1, 4)),
            throughput=Throughput(points),
            phases=(Phase("a", 0.5, 1, 1), Phase("b", 0.5, nodes, nodes)),
        )
        view = build_view(job, [offer(SPOT_A, 2.0), offer(SAFE, 8.0)])
        (reported,) = [
            each
            for each in only(AdaptiveStrategy().decide(view)).alternatives
            if str(SPOT_A) in each.choice
        ]
        assert reported.value_usd is not None
        values.append(reported.value_usd)
    assert 2.2 < values[1] / values[0] < 2.8


def _elastic(deadline_h: float, available: int, *, nodes: tuple[Node, ...] = ()) -> Decision:
    """8 h on one node; each doubling of the nodes keeps 90 % of its ideal gain."""
    points = tuple(
        ThroughputSample("V100", n, 0.5 * (1.8 ** (n.bit_length() - 1))) for n in (1, 2, 4)
    )
    job = replace(task(deadline_s=deadline_h * HOUR_S, nodes=(1, 4)), throughput=Throughput(points))
    view = build_view(job, [offer(SPOT_A, 2.0, available), offer(SAFE, 8.0)], nodes=nodes)
    return only(AdaptiveStrategy().decide(view))


def test_several_sizes_are_weighed_and_no_more_than_a_few() -> None:
    reported = [a.choice for a in _elastic(30, 4).alternatives if str(SPOT_A) in a.choice]
    assert 2 <= len(reported) <= 4
    assert len(reported) == len(set(reported))


def test_with_much_time_the_cheapest_work_is_done_and_with_little_more_nodes_are_taken() -> None:
    assert _elastic(60, 4).targets == (Target(SPOT_A, 1),)
    assert _elastic(9.2, 4).targets[0].nodes > 1


def test_where_a_pool_gives_fewer_nodes_fewer_are_taken() -> None:
    """On demand the deadline asks for four: two on spot are a start while there is slack."""
    assert _elastic(4.5, 2).targets == (Target(SPOT_A, 2),)
    assert _elastic(3.0, 2).targets[0].pool == SAFE


def test_a_resize_is_paid_for_by_what_it_saves() -> None:
    """The gang that runs is not torn down for one that is hardly cheaper."""
    assert _elastic(30, 4, nodes=nodes_in(SPOT_A, 2)).targets[0].nodes in (1, 2)
    assert _elastic(60, 0, nodes=nodes_in(SPOT_A, 1)).targets == (Target(SPOT_A, 1),)
