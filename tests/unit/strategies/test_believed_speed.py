"""A busy minute is no slow machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from costopt.domain.fleet import Node
from costopt.domain.market import Pool
from costopt.domain.view import Target, View
from costopt.strategies.adaptive.strategy import AdaptiveStrategy, SmoothedSpeed
from costopt.strategies.shield import ShieldedStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.market_fixtures import after
from tests.support.strategy_fixtures import TICK_S, build_view, nodes_in, offer, only

ON_A, ON_SAFE = (Target(SPOT_A, 1),), (Target(SAFE, 1),)
SLOW = 0.8


def _view(speed_factor: float, *, tick: int = 0, done_h: float = 1.0, on: Pool = SPOT_A) -> View:
    """4 h of work, due 5.2 h after the start; a gang that was formed an hour ago."""
    nodes: tuple[Node, ...] = nodes_in(on)
    return build_view(
        task(deadline_s=5.2 * HOUR_S),
        [offer(SPOT_A, 2.0), offer(SAFE, 8.0)],
        now_s=HOUR_S + tick * TICK_S,
        done=done_h * HOUR_S,
        nodes=nodes,
        speed_factor=speed_factor,
    )


def _targets(strategy: AdaptiveStrategy, factors: Sequence[float]) -> list[tuple[Target, ...]]:
    """What is decided tick by tick on a gang that goes on with its work at these speeds."""
    chosen, done_h, shielded = [], 1.0, ShieldedStrategy(strategy)
    for tick, factor in enumerate(factors):
        view = _view(factor, tick=tick, done_h=done_h)
        chosen.append(only(shielded.decide(view)).targets)
        done_h += factor * TICK_S / HOUR_S
    return chosen


def _measured_for_an_hour(on: Pool = SPOT_A) -> AdaptiveStrategy:
    """A strategy that has seen the job at 0.999 of its predicted speed for an hour."""
    strategy = AdaptiveStrategy()
    for tick in range(-12, 0):
        strategy.decide(_view(0.999, tick=tick, on=on))
    return strategy


def test_at_that_speed_it_would_leave_spot() -> None:
    """So that the tests below test something."""
    assert only(AdaptiveStrategy().decide(_view(SLOW))).targets == ON_SAFE
    assert only(AdaptiveStrategy().decide(_view(0.999))).targets == ON_A


@pytest.mark.parametrize("ticks", [1, 2])
def test_a_dip_of_the_measured_speed_moves_nothing(ticks: int) -> None:
    factors = [0.999] * 2 + [SLOW] * ticks + [0.999] * 4
    assert set(_targets(_measured_for_an_hour(), factors)) == {ON_A}


def test_a_speed_that_stays_low_is_believed() -> None:
    chosen = _targets(_measured_for_an_hour(), [SLOW] * 24)
    assert chosen[0] == ON_A
    assert chosen[-1] == ON_SAFE


def test_the_shield_believes_a_dip_that_endangers_the_deadline_at_once() -> None:
    shielded = ShieldedStrategy(_measured_for_an_hour())
    assert only(shielded.decide(_view(0.7))).targets == ON_SAFE


def test_on_demand_is_not_left_right_after_a_dip() -> None:
    strategy = _measured_for_an_hour(on=SAFE)
    before = only(strategy.decide(_view(0.999, on=SAFE))).targets
    strategy.decide(_view(SLOW, tick=1, on=SAFE))
    just_after = only(strategy.decide(_view(0.999, tick=2, on=SAFE))).targets
    assert (before, just_after) == (ON_A, ON_SAFE)


def test_the_first_report_counts_in_full_and_later_ones_by_their_time() -> None:
    speed = SmoothedSpeed()
    view = _view(1.0)
    speed.update(view.jobs[0], view.now)
    assert speed.mean == 1.0
    for second, factor in ((0, 0.6), (HOUR_S, 0.6), (HOUR_S + 600, 0.9)):
        speed.update(_view(factor).jobs[0], after(second))
    assert 0.6 < speed.mean < 0.66
    assert speed.cautious <= speed.mean


def test_a_second_look_at_one_instant_counts_once() -> None:
    speed = SmoothedSpeed()
    for factor in (0.6, 0.9):
        speed.update(_view(factor).jobs[0], after(0))
    assert speed.mean == 0.6
