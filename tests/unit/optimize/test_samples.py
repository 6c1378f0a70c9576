"""The draws that forecasts share, and the quantiles that they are turned into."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costopt.optimize.random_draws import EXACT_MEAN, draw_randoms, gamma_quantile, poisson_quantile

SAMPLES = 4000


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.4, 3.0, 40.0, EXACT_MEAN, 200.0, 1e6])
def test_counts_have_the_mean_and_the_variance_of_a_poisson_distribution(mean: float) -> None:
    counts = poisson_quantile(np.full(SAMPLES, mean), draw_randoms(SAMPLES).events[0])
    assert (counts >= 0).all()
    assert (counts == np.rint(counts)).all()
    assert float(counts.mean()) == pytest.approx(mean, rel=0.01, abs=0.3 / SAMPLES)
    assert float(counts.var()) == pytest.approx(mean, rel=0.03, abs=0.5 / SAMPLES)


def test_counts_are_exact_quantiles_where_they_are_few() -> None:
    mean, middle = np.array([1.0]), np.array([0.5])
    assert math.exp(-1) < 0.5 < 2 * math.exp(-1)
    assert poisson_quantile(mean, middle).tolist() == [1.0]


def test_more_hazard_is_never_fewer_interruptions_in_the_same_run() -> None:
    chances = draw_randoms(SAMPLES).events
    means = np.geomspace(1e-3, 2 * EXACT_MEAN, 60)[:, None]
    counts = poisson_quantile(means, chances)
    assert (np.diff(counts, axis=0) >= 0).all()


@pytest.mark.parametrize("shape", [1.0, 2.0, 30.0])
def test_waits_have_the_mean_and_the_variance_of_a_gamma_distribution(shape: float) -> None:
    waits = gamma_quantile(np.full(SAMPLES, shape), draw_randoms(SAMPLES).waits[0])
    assert float(waits.mean()) == pytest.approx(shape, rel=0.01)
    assert float(waits.var()) == pytest.approx(shape, rel=0.1)
    assert gamma_quantile(np.zeros(1), np.array([2.0])).tolist() == [0.0]


def test_runs_have_draws_of_their_own_that_stay_the_same() -> None:
    three, one = draw_randoms(SAMPLES, range(3)), draw_randoms(SAMPLES, [1])
    assert three.events.shape == (3, SAMPLES)
    assert (three.events[1] == one.events[0]).all()
    assert (three.events[0] != three.events[1]).any()
    assert (three.speed == one.speed).all()
    for other in (three.hazard, three.loss, three.events[0], three.waits[0]):
        assert abs(float(np.corrcoef(three.speed, other)[0, 1])) < 0.06
