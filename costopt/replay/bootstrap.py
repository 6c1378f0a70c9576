"""Confidence intervals by resampling windows, all policies of a window together.

The bootstrap of Efron (1979) with percentile intervals. Resampling whole windows pairs a policy
with the optimum of the same window, so what is easy or hard about a window cancels in their ratio.
Windows of one record may overlap and are then alike, so the true interval is wider than this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
CONFIDENCE_LEVEL = 0.95


def mean_interval(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """The interval of the mean; None for fewer than two values."""
    return ratio_interval(values, [1.0] * len(values), seed)


def ratio_interval(
    values: Sequence[float], references: Sequence[float], seed: int
) -> tuple[float, float] | None:
    """The interval of mean(values) / mean(references), paired; None for fewer than two pairs."""
    if len(values) < 2:
        return None
    above, below = np.asarray(values), np.asarray(references)
    picks = np.random.default_rng(seed).integers(len(above), size=(RESAMPLES, len(above)))
    ratios = above[picks].mean(axis=1) / below[picks].mean(axis=1)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
