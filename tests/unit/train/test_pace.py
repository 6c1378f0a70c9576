"""How fast the training steps: neither its first steps nor steps that were lost count."""

from __future__ import annotations

import pytest

from costopt.train.reporter import MIN_STEPS, WARM_STEPS, WINDOW_S, StepRate


def paced(*lengths_s: float) -> StepRate:
    pace, now = StepRate(), 100.0
    for length_s in lengths_s:
        now += length_s
        pace.record_step(now)
    return pace


def test_the_first_steps_of_a_process_do_not_count_for_its_pace() -> None:
    warm = [7.0] * WARM_STEPS
    assert paced(*warm, *[0.5] * (MIN_STEPS - 1)).step_s is None
    assert paced(*warm, *[0.5] * MIN_STEPS).step_s == pytest.approx(0.5)


def test_steps_that_take_longer_than_the_window_have_a_pace() -> None:
    slow_s = 3 * WINDOW_S
    assert paced(*[slow_s] * (WARM_STEPS + MIN_STEPS)).step_s == pytest.approx(slow_s)
    later = paced(*[slow_s] * 20, *[2 * slow_s] * MIN_STEPS)
    assert later.step_s == pytest.approx(2 * slow_s)


def test_what_was_long_ago_is_forgotten() -> None:
    assert paced(*[1.0] * 50, *[0.1] * 200).step_s == pytest.approx(0.1)


def test_the_pause_between_two_gangs_is_not_a_step() -> None:
    pace = paced(*[0.5] * (WARM_STEPS + MIN_STEPS))
    pace.reset()
    assert pace.step_s is None
    for now in range(1000, 1001 + MIN_STEPS):
        pace.record_step(float(now))
    assert pace.step_s == pytest.approx(1.0)
