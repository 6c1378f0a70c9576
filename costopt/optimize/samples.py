"""Samples of what runs come to, and the random draws that they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from costopt.optimize.rates import Array

SEED = 20260302


@dataclass(frozen=True, slots=True)
class Samples:
    """Arrays of shape (runs, samples): hours, kWh, dollars, interruptions; finish from now.

    ``changed`` is 1 where a run changes to the fallback.
    """

    finish_h: Array
    usd: Array
    kwh: Array
    interruptions: Array
    gco2e: Array
    changed: Array


@dataclass(frozen=True, slots=True)
class Draws:
    """Standard normal draws (samples,) of speed, hazard and loss, and the generator of others."""

    speed: Array
    hazard: Array
    loss: Array
    rng: np.random.Generator


def draw(samples: int) -> Draws:
    rng = np.random.default_rng(SEED)
    grid = _normal_grid(samples)
    return Draws(rng.permutation(grid), rng.permutation(grid), rng.permutation(grid), rng)


@lru_cache(maxsize=8)
def _normal_grid(samples: int) -> Array:
    """Evenly spread normal quantiles: few samples then give the same percentiles as many."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / samples) for i in range(samples)])


def within(value: Array, low: Array, high: Array, draws: Array) -> Array:
    """Values × samples from a 90 % interval whose sides may differ."""
    weight = np.abs(draws)[None, :]
    edge = np.where(draws[None, :] < 0, low[:, None], high[:, None])
    base = value[:, None]
    return base + (edge - base) * weight / 1.6448536269514722
