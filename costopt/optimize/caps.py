"""Power caps as further rows: the same gang once more under each limit of its GPUs' power."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from costopt.domain.market import Offer
from costopt.domain.power import NodePower, PowerCap
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.rows import UNCAPPED, Mask, Rows, gang_sum


def with_caps(rows: Rows, offers: Sequence[Offer], request: PlanRequest) -> Rows:
    """``rows`` as they are, then each under every power cap of its nodes, if the policy allows it.

    The nodes of a spread are of one machine type, so that the caps of the first one are those of
    all.
    """
    if not request.policy.limits.power_caps:
        return rows
    first = rows.first()
    counts = np.array([len(usable_caps(request.powers[o.pool])) for o in offers], dtype=np.int64)
    if not len(first) or not counts.any():
        return rows
    capped = [rows.take(counts[first] > cap).under_cap(cap) for cap in range(int(counts.max()))]
    return Rows.concatenate([rows, *capped])


def usable_caps(power: NodePower) -> tuple[PowerCap, ...]:
    """The node's caps whose figures are ones: above 0, finite and no faster than without."""
    return tuple(cap for cap in power.caps if _is_usable(cap))


def cap_w(rows: Rows, powers: Sequence[NodePower]) -> Array:
    """The power limit of each GPU, NaN where there is none. ``powers`` are by offer."""
    return _of_first(rows, powers, lambda cap: cap.cap_w, math.nan)


def cap_speed(rows: Rows, powers: Sequence[NodePower]) -> Array:
    """The share of the uncapped speed that each row keeps. ``powers`` are by offer."""
    return _of_first(rows, powers, lambda cap: cap.speed, 1.0)


def gang_busy_kw(rows: Rows, powers: Sequence[NodePower]) -> Array:
    """What each row's gang draws at the meter while it trains, under its cap. Shape (rows,)."""
    busy_w = _by_cap(powers, lambda cap: cap.busy_w, [power.busy_w for power in powers])
    busy_kw = busy_w * np.array([power.pue for power in powers]) / 1000
    if not (rows.cap != UNCAPPED).any():
        return gang_sum(rows, busy_kw[UNCAPPED])
    total = np.empty(len(rows.nodes))
    for cap in np.unique(rows.cap).tolist():
        of_cap = rows.cap == cap
        total[of_cap] = gang_sum(rows.take(of_cap), busy_kw[cap])
    return total


def lowers_energy(table: ConfigurationTable, rows: Rows, powers: Sequence[NodePower]) -> Mask:
    """Whether the row's cap lowers kWh per unit of work; true for rows without one.

    The table is that of ``rows``, ``powers`` are by offer. Restarts draw the same with a cap, and
    the other parts of the node too: so a low cap, which lets them draw for longer, may cost energy.
    """
    if not (rows.cap != UNCAPPED).any():
        return np.ones(len(rows.nodes), dtype=bool)
    uncapped_kw = gang_sum(rows, np.array([p.busy_w * p.pue / 1000 for p in powers]))
    restarting = np.minimum(1.0, table.hazard * table.start_h)
    idle_kwh = table.idle_kw * restarting
    capped = (table.busy_kw * (1 - restarting) + idle_kwh) / cap_speed(rows, powers)
    lower: Mask = capped < uncapped_kw * (1 - restarting) + idle_kwh
    return lower | np.isnan(table.cap_w)


def _of_first(
    rows: Rows, powers: Sequence[NodePower], figure: Callable[[PowerCap], float], without: float
) -> Array:
    """A figure of the cap of each row's first offer. Shape (rows,)."""
    by_cap = _by_cap(powers, figure, [without] * len(powers))
    return np.asarray(by_cap[rows.cap, rows.first()], dtype=float)


def _by_cap(
    powers: Sequence[NodePower], figure: Callable[[PowerCap], float], without: Sequence[float]
) -> Array:
    """Shape (caps + 1, offers); the last row is ``without``, so that ``UNCAPPED`` finds it.

    NaN where an offer has fewer caps than others.
    """
    caps = [usable_caps(power) for power in powers]
    most = max(map(len, caps), default=0)
    by_cap = np.full((most + 1, len(powers)), math.nan)
    by_cap[UNCAPPED] = without
    for number, known in enumerate(caps):
        by_cap[: len(known), number] = [figure(cap) for cap in known]
    return by_cap


def _is_usable(cap: PowerCap) -> bool:
    finite = all(math.isfinite(x) and x > 0 for x in (cap.cap_w, cap.speed, cap.busy_w))
    return finite and cap.speed <= 1
