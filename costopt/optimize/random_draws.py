"""Samples of the time and cost of runs, and the random draws on which they rest.

All forecasts use the same draws (common random numbers): plans, scenarios and candidates differ by
what they are, not by chance, and a plan that is evaluated twice gets the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from costopt.domain.job import Budget
from costopt.optimize.rates import Array

SEED = 20260302

_COMMON, _EVENTS, _WAITS = (0, 1, 2), 3, 4
"""Kinds of draws: of speed, hazard and loss; of interruptions; of waits."""

EXACT_MEAN = 64.0
SMALLEST_TERM = 1e-16
"""A further count that is less likely than this does not add to a probability."""


@dataclass(frozen=True, slots=True)
class RunSamples:
    """Simulated runs, as arrays of shape (runs, samples).

    They hold hours, kWh, dollars and interruptions; the finish is in hours from now. ``changed`` is
    1 where a run changes to the fallback.
    """

    finish_h: Array
    usd: Array
    kwh: Array
    interruptions: Array
    gco2e: Array
    changed: Array


@dataclass(frozen=True, slots=True)
class RandomDraws:
    """Standard normal draws (samples,) of speed, hazard and loss.

    ``events`` (runs or 1, samples) are probabilities, of the number of interruptions, and ``waits``
    normal draws, of the waits after them: of each run of a forecast or the same of all.
    """

    speed: Array
    hazard: Array
    loss: Array
    events: Array
    waits: Array


def draw_randoms(samples: int, runs: Sequence[int] = (0,)) -> RandomDraws:
    """Return the draws of the runs with these numbers, which follow one another."""
    speed, hazard, loss = (permuted_grid(samples, kind, 0) for kind in _COMMON)
    events = np.array([_permuted(_even_grid(samples), _EVENTS, run) for run in runs])
    waits = np.array([permuted_grid(samples, _WAITS, run) for run in runs])
    return RandomDraws(speed, hazard, loss, events, waits)


def poisson_quantile(mean: Array, probability: Array) -> Array:
    """Return the least count that a Poisson variable exceeds with at most 1 − ``probability``.

    ``mean`` is the variable's mean; both arguments are broadcast together, and the result rises
    with both. Above a mean of ``EXACT_MEAN`` it is the Cornish-Fisher approximation.
    """
    mean, probability = np.broadcast_arrays(mean, probability)
    found = np.empty(mean.shape)
    near = mean <= EXACT_MEAN
    found[near] = _counted(mean[near], probability[near])
    far = ~near
    normal = _normal_quantile(probability[far])
    found[far] = np.rint(mean[far] + np.sqrt(mean[far]) * normal + (normal**2 - 1) / 6)
    return np.maximum(0.0, found)


def gamma_quantile(shape: Array, normal: Array) -> Array:
    """Return the gamma quantile, at this shape and scale 1, at the probability of a normal draw.

    ``normal`` holds standard normal draws. The approximation is Wilson and Hilferty's
    (doi:10.1073/pnas.17.12.684); the result is 0 at shape 0.
    """
    some = np.maximum(shape, 1e-12)
    root = np.maximum(0.0, 1 - 1 / (9 * some) + normal / (3 * np.sqrt(some)))
    return np.where(shape > 0, shape * root**3, 0.0)


def _counted(mean: Array, probability: Array) -> Array:
    """The least counts whose probability is at least ``probability``."""
    count = np.zeros(len(mean))
    term = np.exp(-mean)
    total = term.copy()
    left = np.flatnonzero(total < probability)
    while len(left):
        count[left] += 1
        term[left] *= mean[left] / count[left]
        total[left] += term[left]
        ended = (count[left] > mean[left]) & (term[left] < SMALLEST_TERM)
        left = left[(total[left] < probability[left]) & ~ended]
    return count


def _normal_quantile(probability: Array) -> Array:
    distinct, place = np.unique(probability, return_inverse=True)
    quantile = NormalDist().inv_cdf
    return np.array([quantile(p) for p in distinct.tolist()])[place]


@lru_cache(maxsize=64)
def permuted_grid(samples: int, kind: int, run: int) -> Array:
    """Return evenly spread normal quantiles in a fixed order, shape (samples,).

    The order depends only on the kind of draw and the number of the run.
    """
    return _permuted(_normal_grid(samples), kind, run)


def _permuted(grid: Array, kind: int, run: int) -> Array:
    drawn: Array = np.random.default_rng((SEED, kind, run)).permutation(grid)
    drawn.flags.writeable = False
    return drawn


def _even_grid(samples: int) -> Array:
    return (np.arange(samples) + 0.5) / samples


@lru_cache(maxsize=8)
def _normal_grid(samples: int) -> Array:
    """Evenly spread normal quantiles: few samples then give the same percentiles as many."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / samples) for i in range(samples)])


def within(value: Array, low: Array, high: Array, draws: Array) -> Array:
    """Return samples of each value from its 90 % interval, shape (values, samples).

    ``value``, ``low`` and ``high`` have shape (values,); the interval's sides may differ. ``draws``
    has shape (samples,) and is standard normal.
    """
    weight = np.abs(draws)[None, :]
    edge = np.where(draws[None, :] < 0, low[:, None], high[:, None])
    base = value[:, None]
    return base + (edge - base) * weight / 1.6448536269514722


def runs_within_budget(samples: RunSamples, budget: Budget) -> NDArray[np.bool_] | None:
    """Return which runs stay within the budget, shape (runs, samples); None if there is none.

    A run of unknown energy does not count as within a budget in kWh.
    """
    if budget.max_usd is None and budget.max_kwh is None:
        return None
    affordable = np.ones(samples.usd.shape, dtype=np.bool_)
    if budget.max_usd is not None:
        affordable &= samples.usd <= budget.max_usd
    if budget.max_kwh is not None:
        affordable &= samples.kwh <= budget.max_kwh
    return affordable
