"""The share of the time in which some pool at about a configuration's price has capacity.

A run whose pool has none goes to another one, so that it waits only where none of them has any.
Pools are taken to come and go independently.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from costopt.optimize.configurations import ConfigurationRows, gang_max, gang_sum
from costopt.optimize.offer_columns import OfferColumns
from costopt.optimize.rates import Array

ABOUT_THE_PRICE = 1.25
"""Pools of a machine whose price is at most so many times a configuration's take its place."""


def share_of_any(rows: ConfigurationRows, columns: OfferColumns, share: Array) -> Array:
    """Return the share of the time with capacity for each row, or another one in its place.

    ``share``, shape (offers,), is that of each pool. A spread needs as many zones of a region. The
    result has shape (rows,).
    """
    own: Array = -gang_max(rows, -share)
    shaky = np.array([o.pool.capacity_type.is_interruptible for o in columns.offers], dtype=bool)
    scarce = shaky & (share < 1)
    first = rows.first()
    node_usd = gang_sum(rows, columns.usd_per_hour) / rows.nodes
    for machine in np.unique(columns.machine[scarce]).tolist():
        kind = shaky & (columns.machine == machine)
        places = np.flatnonzero(kind[first])
        none = np.ones(len(places))
        for zones in _by_region(columns, np.flatnonzero(kind)):
            usd = columns.usd_per_hour[zones]
            alike = usd[None, :] <= ABOUT_THE_PRICE * node_usd[places][:, None]
            none *= 1 - _at_least(rows.parts_count[places], alike * share[zones])
        own[places] = np.maximum(own[places], 1 - none)
    return own


def _by_region(columns: OfferColumns, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    regions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in numbers.tolist():
        pool = columns.offers[number].pool
        regions[pool.provider, pool.region].append(number)
    return [np.array(zones) for zones in regions.values()]


def _at_least(needed: NDArray[np.int64], share: Array) -> Array:
    """Return the probability that so many of the columns of ``share`` have capacity, by row."""
    most = int(needed.max(initial=1))
    count = np.zeros((len(needed), most + 1))
    count[:, 0] = 1.0
    for up in share.T[:, :, None]:
        more = np.pad(count[:, :-1], ((0, 0), (1, 0))) * up
        more[:, -1:] += count[:, -1:] * up
        count = count * (1 - up) + more
    enough = np.arange(most + 1)[None, :] >= needed[:, None]
    return np.asarray((count * enough).sum(axis=1))
