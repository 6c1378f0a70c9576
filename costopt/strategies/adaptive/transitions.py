"""Transitions of capacity in a step: which lanes can be launched, and at which age.

What can be launched is encoded in blocks of classes of age: one block for each head (the cheapest
lane of a pool) where that is the cheapest that is up, cheapest first, and a last one where all are
down. Matrices are transposed: values after a step times a matrix are the values expected before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costopt.market.lifetime import AgeRates
from costopt.strategies.adaptive.problem import DeadlineProblem

Values = npt.NDArray[np.float64]


def survival_transitions(rates: AgeRates, step_h: float) -> Values:
    """Among the classes of a period up that does not end."""
    lasts = 1.0 - _ending(rates.up_per_hour, step_h)
    return _aging(rates.from_h, step_h) * lasts


def loss_transitions(terms: DeadlineProblem, lane: int) -> Values:
    """From a lane that is up to what can be launched once its period has ended."""
    ends = _ending(terms.lanes[lane].rates.up_per_hour, terms.step_h)
    classes, own = len(ends), terms.block_of(lane)
    matrix = np.zeros(((len(terms.heads) + 1) * classes, classes))
    none_before = 1.0
    for block, head in enumerate(terms.heads):
        if block != own:
            share = terms.lanes[head].share
            matrix[block * classes + terms.hop_class] = ends * none_before * share
            none_before *= 1.0 - share
    matrix[len(terms.heads) * classes] = ends * none_before
    return matrix


def launchable_transitions(terms: DeadlineProblem) -> Values:
    """Among what can be launched, while the job runs on none of it."""
    heads, classes = terms.heads, terms.classes
    matrix = np.zeros(((len(heads) + 1) * classes,) * 2)
    if not heads:
        return np.eye(classes)
    for place, i in enumerate(heads):
        rates, block = terms.lanes[i].rates, slice(place * classes, (place + 1) * classes)
        coming = _coming(terms, heads[:place])
        worse = 1.0 - coming[:, terms.hop_class].sum()
        matrix[block, block] = survival_transitions(rates, terms.step_h) * worse
        lasts = 1.0 - _ending(rates.up_per_hour, terms.step_h)
        for cheaper in range(place):
            matrix[cheaper * classes, block] += lasts * coming[cheaper, terms.hop_class]
        matrix[:, block] += loss_transitions(terms, i)
    down, coming = slice(len(heads) * classes, None), _coming(terms, heads)
    for place in range(len(heads)):
        matrix[place * classes, down] = coming[place]
    aging = _aging(terms.lanes[0].rates.from_h, terms.step_h)
    matrix[down, down] = aging * (1.0 - coming.sum(axis=0))
    return matrix


def _ending(per_hour: tuple[float, ...], step_h: float) -> Values:
    """The chance, by class of age, that a period ends within a step."""
    return -np.expm1(-np.asarray(per_hour) * step_h)


def _aging(from_h: tuple[float, ...], step_h: float) -> Values:
    """From class to class of a period that goes on."""
    classes = len(from_h)
    older = np.append(np.minimum(1.0, step_h / np.diff(from_h)), 0.0)
    matrix: Values = np.diag(1.0 - older)
    matrix[np.arange(1, classes), np.arange(classes - 1)] = older[:-1]
    return matrix


def _coming(terms: DeadlineProblem, heads: Sequence[int]) -> Values:
    """The chance, by head and class of age of the period down, that it is the next to come back."""
    rates = np.zeros((len(heads), terms.classes))
    for place, i in enumerate(heads):
        lane = terms.lanes[i]
        rates[place] = lane.rates.down_per_hour
        rates[place, : lane.down_class] = rates[place, lane.down_class]
    if not heads:
        return rates
    total, fastest = rates.sum(axis=0), rates.max(axis=0)
    together = 0.5 * (total + fastest)
    any_comes = -np.expm1(-together * terms.step_h)
    chances: Values = rates / np.maximum(total, 1e-12) * any_comes
    return chances
