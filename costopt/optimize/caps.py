"""Power caps as further rows: the same gang once more under each limit of its GPUs' power."""

from __future__ import annotations

import numpy as np

from costopt.domain.policy import Limits
from costopt.optimize.offer_columns import UNCAPPED, OfferColumns
from costopt.optimize.rates import Array
from costopt.optimize.rows import ConfigurationRows, gang_sum
from costopt.optimize.spreads import Mask


def add_power_caps(
    rows: ConfigurationRows, columns: OfferColumns, limits: Limits
) -> ConfigurationRows:
    """``rows`` as they are, then each under every power cap of its nodes, if the policy allows it.

    The nodes of a spread are of one machine type, so that the caps of the first one are those of
    all.
    """
    if not limits.power_caps or not len(rows) or not columns.caps.any():
        return rows
    counts = columns.caps[rows.first()]
    capped = [rows.take(np.flatnonzero(counts > cap)).under_cap(cap) for cap in range(counts.max())]
    return ConfigurationRows.concatenate([rows, *capped])


def power_cap_w(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """The power limit of each GPU, NaN where there is none. Shape (rows,)."""
    return _of_first(rows, columns.cap_w)


def capped_speed_share(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """The share of the uncapped speed that each row keeps. Shape (rows,)."""
    return _of_first(rows, columns.cap_speed)


def gang_busy_kw(rows: ConfigurationRows, columns: OfferColumns) -> Array:
    """What each row's gang draws at the meter while it trains, under its cap. Shape (rows,)."""
    if not len(rows):
        return np.empty(0)
    spread = rows.spread
    total: Array = columns.busy_kw[rows.cap, rows.offer] * rows.nodes
    cap = np.repeat(rows.cap, spread.counts)
    total[spread.rows] = spread.total(columns.busy_kw[cap, spread.offer] * spread.nodes)
    return total


def is_energy_saving(
    rows: ConfigurationRows,
    columns: OfferColumns,
    busy_kw: Array,
    idle_kw: Array,
    restarting: Array,
) -> Mask:
    """Whether the row's cap lowers kWh per unit of work; true for rows without one.

    ``busy_kw`` and ``idle_kw`` are of the gangs, ``restarting`` is the share of the time that goes
    to restarts, all of shape (rows,). Restarts draw the same with a cap, and the other parts of the
    node too: so a low cap, which lets them draw for longer, may cost energy.
    """
    uncapped: Mask = rows.cap == UNCAPPED
    if uncapped.all():
        return uncapped
    uncapped_kw = gang_sum(rows, columns.busy_kw[UNCAPPED])
    idle_kwh = idle_kw * restarting
    capped = (busy_kw * (1 - restarting) + idle_kwh) / capped_speed_share(rows, columns)
    lower: Mask = capped < uncapped_kw * (1 - restarting) + idle_kwh
    return lower | uncapped


def _of_first(rows: ConfigurationRows, by_cap: Array) -> Array:
    """A figure of the cap of each row's first offer. Shape (rows,)."""
    return np.asarray(by_cap[rows.cap, rows.first()], dtype=float)
