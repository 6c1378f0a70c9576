"""Configurations: a pool, or an even spread over a region's zones, with a number of nodes.

A table holds them all for one job as columns, so that a thousand pools × sixteen gang sizes are
priced in milliseconds. Row i is one configuration; every column is an array over rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.market import Offer, Pool
from costopt.optimize.rates import Array
from costopt.optimize.spreads import ZoneSpreads


@dataclass(frozen=True, slots=True)
class ConfigurationTable:
    """Columns over configurations of one job.

    ``offer`` is the number of the offer, or −1 where ``spread`` gives the parts. ``usd_per_hour``,
    ``busy_kw`` and ``idle_kw`` (at the meter) are of the whole gang; ``gco2e_per_kwh`` is NaN where
    unknown. ``hazard`` is interruptions of the gang per hour and ``speed`` units/s without any,
    each with the ends of its 90 % interval. ``paid_units_per_hour`` is the expected work of a paid
    hour; ``stretch`` the calendar hours to hold for a paid hour at the policy's on-time risk, and
    ``calendar`` the expected ones. ``score_per_hour`` is the objective of a paid hour,
    ``start_score`` that of a start. ``now`` tells whether the gang could start at once.

    Where the power is unknown ``busy_kw``, ``idle_kw`` and ``power_error`` are NaN, and so is the
    energy of forecasts. ``kwh_per_hour`` and ``kwh_per_start``, which solvers read, are 0 there:
    such a row is only in the table of a job for which nothing counts energy.

    ``usd_per_hour`` includes ``moving_usd_per_hour``: what restarts after interruptions and saves
    are expected to pay for moving data between regions.

    ``gang`` numbers what must be started: rows with the same gang differ only in ``cap_w``, the
    power limit of each GPU (NaN: none), and change without a start. ``start_h`` are the hours from
    a launch until new work is done: start-up, restore and the transfer of data, and before them the
    longest wait for capacity, ``wait_h``, which costs nothing; ``transfer_usd`` the dollars of that
    transfer at each start. ``firm`` rows are those that a deadline may rest on. ``from_h`` and
    ``until_h`` bound the hours from now in which the gang can be used (−∞, ∞: no bound), which
    ``now`` does not regard. ``steady`` tells that what is available now is so over the whole
    horizon, as in reserved pools. ``pace`` has shape (stages, rows): the speed in a stage over
    ``speed``, 0 where the row cannot run it.
    """

    offers: tuple[Offer, ...]
    spread: ZoneSpreads
    offer: NDArray[np.int64]
    nodes: NDArray[np.int64]
    usd_per_hour: Array
    busy_kw: Array
    idle_kw: Array
    gco2e_per_kwh: Array
    power_error: Array
    hazard: Array
    hazard_low: Array
    hazard_high: Array
    speed: Array
    speed_low: Array
    speed_high: Array
    interval_s: Array
    availability: Array
    firm: NDArray[np.bool_]
    now: NDArray[np.bool_]
    running: NDArray[np.bool_]
    paid_units_per_hour: Array
    calendar: Array
    stretch: Array
    score_per_hour: Array
    usd_per_start: Array
    kwh_per_hour: Array
    kwh_per_start: Array
    start_score: Array
    gang: NDArray[np.int64]
    cap_w: Array
    start_h: Array
    wait_h: Array
    transfer_usd: Array
    moving_usd_per_hour: Array
    from_h: Array
    until_h: Array
    steady: NDArray[np.bool_]
    pace: Array

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def billed_startup_h(self) -> Array:
        """``start_h`` without the wait."""
        return self.start_h - self.wait_h

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """The table of these rows, in this order."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        columns = {
            f.name: getattr(self, f.name)[..., places]
            for f in fields(self)
            if f.name not in ("offers", "spread")
        }
        return replace(self, spread=self.spread.take(places), **columns)

    def first(self) -> NDArray[np.int64]:
        """The offer of each row, or the first one of its spread."""
        first = self.offer.copy()
        first[self.spread.rows] = self.spread.primary_offer()
        return first

    def parts(self, row: int) -> tuple[tuple[Pool, int], ...]:
        """(pool, nodes) of a row."""
        numbers = self.spread[row] or ((int(self.offer[row]), int(self.nodes[row])),)
        return tuple((self.offers[number].pool, nodes) for number, nodes in numbers)

    def label(self, row: int) -> str:
        """A row in words: ``4 × aws/us-east-1/…``."""
        return " + ".join(f"{nodes} × {pool}" for pool, nodes in self.parts(row))
