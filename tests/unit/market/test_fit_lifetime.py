"""The fit finds the rates that a record was made with."""

from __future__ import annotations

import random

import pytest

from benchmarks.fit_lifetime import FROM_H, fit


def test_the_rates_of_a_made_up_record_are_found() -> None:
    """Periods end at 1.2 per hour while they are young, and at 0.2 per hour from an hour on."""
    draw, up, age_h, tick_h = random.Random(7), [0], 0.0, 0.05
    for _ in range(60_000):
        ends = draw.random() < tick_h * (1.2 if age_h < 1.0 - 1e-9 else 0.2)
        up.append(1 - up[-1] if ends else up[-1])
        age_h = 0.0 if ends else age_h + tick_h
    rates = fit([(up, 3600 * tick_h)])
    for of_age, from_h in enumerate(FROM_H[:5]):
        expected = 1.2 if from_h < 1.0 else 0.2
        assert rates.up_per_hour[of_age] == pytest.approx(expected, rel=0.15)
        assert rates.down_per_hour[of_age] == pytest.approx(expected, rel=0.15)
