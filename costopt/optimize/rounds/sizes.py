"""The price of a GPU at which all gangs fit, and the choice of what fits in an order."""

from __future__ import annotations

import numpy as np

from costopt.optimize.rounds.gangs import Flags, Floats, Ints

BISECTIONS = 30


def capacity_price(
    step_price: Floats, step_gpus: Ints, smallest_gpus: int, gpus: int, max_price: float
) -> float:
    """Return the least price at which the gangs fit, at most ``max_price``, to within a bisection.

    Each job takes the steps whose price is above it; ``smallest_gpus`` is the sum of the smallest
    gangs.
    """
    flat = step_price.ravel()
    order = np.argsort(-flat)
    total = step_gpus.ravel()[order].cumsum()
    count = int(np.searchsorted(total, gpus - smallest_gpus, side="right"))
    # The gangs fit from the price of the first step on that does not.
    least = float(flat[order[count]]) if count < len(order) else 0.0
    if smallest_gpus > gpus or least > max_price:
        return max_price
    if least <= 0.0:
        return 0.0
    low, high = 0.0, max_price
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if middle >= least else (middle, high)
    return high


def first_fit(order: Ints, gpus: Ints, capacity: int) -> Flags:
    """Return which jobs are served, in this order, passing over those that do not fit."""
    served = np.zeros(len(gpus), dtype=bool)
    while len(order) and capacity > 0:
        total = gpus[order].cumsum()
        count = int(np.searchsorted(total, capacity, side="right"))
        served[order[:count]] = True
        capacity -= int(total[count - 1]) if count else 0
        order = order[count:]
        order = order[gpus[order] <= capacity]
    return served
