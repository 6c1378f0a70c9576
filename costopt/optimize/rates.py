"""Rates of work under interruptions: how much work a paid hour brings.

All functions take numpy arrays. Interruptions of a gang form a Poisson process of rate H, the sum
of its pools' hazards: the nodes of a pool go together. Between saves of c seconds, I seconds of
useful work are done; an interruption costs R seconds of start-up and restore, which an interruption
can hit again. The expected paid time for I useful seconds is (1/H) · e^(HR) · (e^(H(I+c)) − 1)
(Daly 2006, doi:10.1016/j.future.2004.11.016, eq. 13), and I + c where H = 0. That is without a
notice, or with one too short for a save.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from costopt.domain.checkpoint_interval import LOSS_BUDGET_S, MIN_INTERVAL_S

Array = NDArray[np.float64]

EXPONENT_CAP = 300.0
"""e^300 seconds is never: beyond it the work does not get done, and floats stay finite."""


def paid_to_useful_ratio(
    hazard_per_hour: Array,
    interval_s: Array,
    save_s: Array | float,
    restart_s: Array | float,
    lossless: NDArray[np.bool_] | bool = False,
) -> Array:
    """Return the expected paid seconds per useful second (≥ 1), in the shape of the hazard.

    The formula is Daly's (2006, eq. 13; see the module). Where an interruption is ``lossless``, it
    takes no work: e^(HR) for each second between interruptions. The result is about e^300 where the
    work would never be done.
    """
    hazard_per_s = hazard_per_hour / 3600.0
    segment = np.minimum(hazard_per_s * (interval_s + save_s), EXPONENT_CAP / 2)
    restart = np.minimum(hazard_per_s * restart_s, EXPONENT_CAP / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        daly = np.exp(restart) * np.expm1(segment) / (hazard_per_s * interval_s)
    calm = (interval_s + save_s) / interval_s
    daly = np.where(lossless, np.exp(restart) * calm, daly)
    return np.where(hazard_per_s < 1e-12, calm, np.maximum(daly, calm))


def base_units(stage_units: Array, pace: Array) -> Array:
    """Return the work of all stages in units at each configuration's own speed, shape (rows,).

    ``stage_units`` has shape (stages,), ``pace`` (stages, rows): the speed in a stage over the
    configuration's own. A unit of a stage takes as long as 1 / pace units at that speed. The result
    is ∞ where a configuration cannot run one of the stages.
    """
    with np.errstate(divide="ignore"):
        total: Array = (stage_units[:, None] / pace).sum(axis=0)
    return total


def intervals_s(
    hazard_per_hour: Array, stated_s: float | None, save_s: Array, lag_s: Array, paid_s: Array
) -> Array:
    """Return the checkpoint interval in seconds of each gang, in the shape of the hazard.

    It is the job's own interval, else that of ``explained_interval``, which loses least, and no
    shorter than the ``lag_s`` for which a save goes on after the training does.
    """
    if stated_s is not None:
        return np.full(hazard_per_hour.shape, stated_s)
    floor = np.maximum(lag_s, MIN_INTERVAL_S)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.sqrt(2 * (3600 / hazard_per_hour) * np.maximum(save_s + paid_s, 0.0))
    best = np.where(hazard_per_hour > 0, best, np.inf)
    return np.clip(best, floor, np.maximum(floor, LOSS_BUDGET_S))


def mean_square_loss_s2(interval_s: Array, restart_s: Array | float) -> Array:
    """Return the mean square, in s², of what one interruption costs.

    The cost is the restart plus lost work that is uniform in [0, I], I being the interval: its mean
    square is (R + I/2)² + I²/12.
    """
    return (restart_s + interval_s / 2) ** 2 + interval_s**2 / 12


def quantile_weight(probability: float) -> float:
    """Return the standard normal quantile of ``probability``, at least 0 and finite."""
    clipped = min(max(probability, 0.5), 0.9999)
    return NormalDist().inv_cdf(clipped)


def towards(value: Array, edge: Array, weight: float) -> Array:
    """Return the figure ``weight`` standard deviations from ``value`` towards ``edge``.

    ``edge`` is an end of the 90 % interval of ``value``.
    """
    return value + (edge - value) * weight / NormalDist().inv_cdf(0.95)
